"""Code generation for NVIDIA GPUs: program to CUDA source, launches, and machine code
by nvcc or NVRTC."""
