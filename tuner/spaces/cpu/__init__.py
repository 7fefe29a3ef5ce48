"""Sketches for CPUs and their knobs."""
