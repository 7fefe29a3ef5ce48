"""Spaces of schedules, derived from the structure of an expression's stages. Pure Python and NumPy, no compiler."""

from tuner.spaces.cpu import program_for, space_for
from tuner.spaces.space import Config, Knob, Points, Sketch, Space

__all__ = ["Config", "Knob", "Points", "Sketch", "Space", "program_for", "space_for"]
