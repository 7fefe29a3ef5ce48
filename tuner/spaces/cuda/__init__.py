"""Sketches for NVIDIA GPUs and their knobs."""
