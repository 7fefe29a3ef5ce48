"""Composition: database, workers and tuning behind `tuner.tune`. Nothing is imported
here: `tuner serve` needs no cost model."""
