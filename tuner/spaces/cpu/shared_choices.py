"""Choices that sketches of several stages share, each for the owner of the knob."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tuner.spaces.core.choice import Choice, choice
from tuner.spaces.core.roles import KnobRole
from tuner.spaces.cpu.facts import Unrolling
from tuner.spaces.program.program import MathFunctions

T = TypeVar("T")


def unrolling_choice(owner: str, factors: Sequence[int]) -> Choice[Unrolling]:
    """Iterations of innermost loops that are unrolled."""
    values = [Unrolling(position=0, factor=factor) for factor in factors]
    return choice(owner, KnobRole.UNROLL, values, lambda value: value.factor)


def math_functions_choice(owner: str) -> Choice[MathFunctions]:
    values: tuple[MathFunctions, ...] = ("polynomial", "libm")
    return choice(owner, KnobRole.MATH_FUNCTIONS, values, str)


def fixed_choice(owner: str, role: KnobRole, value: T) -> Choice[T]:
    """A choice that leaves nothing open."""
    return Choice(owner=owner, role=role, values=(value,), stored=(role.value,))
