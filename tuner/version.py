"""The product's version. This module imports nothing, so every other may import it."""

__version__ = "0.1.0"
