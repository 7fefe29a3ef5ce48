"""Promoted kernels of the database as callable objects."""
