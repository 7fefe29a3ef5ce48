"""Code generation for NVIDIA GPUs: CUDA source, launches, and machine code."""
