"""The product's version, a leaf that everybody may import."""

__version__ = "0.1.0"
