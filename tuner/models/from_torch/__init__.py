"""PyTorch's exported programs as graphs of expressions: core ATen operators as programs."""
