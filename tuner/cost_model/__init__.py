"""Predicted times of configs: the estimate from loop nests alone, and what trials teach."""
