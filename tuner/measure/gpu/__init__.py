"""Measuring on a GPU: the process that owns the device, buffers, checks, NVIDIA's sanitizer."""
