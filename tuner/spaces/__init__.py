"""Spaces of schedules, derived from the structure of an expression's stages. Pure
Python and NumPy, no compiler."""
