"""Measuring on a GPU: the process that owns the device, its buffers and checks,
NVIDIA's sanitizer."""
