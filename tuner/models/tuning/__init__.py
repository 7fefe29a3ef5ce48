"""What a model chooses for its kernels: their time, races inside it, numerics."""
