"""How this machine runs kernels of each kind of target: one object each, in one table."""
