"""Composition: database, workers and tuning behind `tuner.tune` and the commands.

Nothing is imported here, because `tuner serve` must start without a cost model.
"""
