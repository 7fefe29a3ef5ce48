"""Derivatives of expressions, as programs in the notation like any other."""
