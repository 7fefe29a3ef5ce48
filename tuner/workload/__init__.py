"""Tensor programs: notation, catalogue, analysis, and the reference for checking kernels."""
