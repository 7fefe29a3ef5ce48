"""The C runtime that kernels are linked with, and the loaders of compiled libraries."""
