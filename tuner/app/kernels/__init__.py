"""Promoted kernels: called, raced, and imported from other tuners."""
