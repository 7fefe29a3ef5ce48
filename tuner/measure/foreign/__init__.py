"""Kernels that others wrote in C: compiled and run apart, judged from outside."""
