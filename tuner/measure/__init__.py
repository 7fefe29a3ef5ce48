"""Measuring: checks, timing, failure kinds, runner processes, races and their statistics.

No TVM, no cluster.
"""
