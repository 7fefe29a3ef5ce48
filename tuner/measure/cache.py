"""Warm and cold caches: what a timed call finds in them."""

from __future__ import annotations

from typing import Final, Literal

from tuner.errors import UsageError
from tuner.target.target import Target

Cache = Literal["warm", "cold"]
# Calls in a row: each finds what the one before it left.
WARM: Final = "warm"
# Each call comes after others' data: none of it, of the code, of the weights is in a cache.
COLD: Final = "cold"


def check_cache(cache: Cache, target: Target) -> None:
    """Raises UsageError for cold caches of a target whose kernels are not measured so."""
    if target.on_device or target.declared:
        kind = "a GPU" if target.on_device else "a declared CPU"
        refuse_cold(cache, f"{target.name} is {kind}: only a machine's own CPU is timed so")


def refuse_cold(cache: Cache, what: str) -> None:
    """Raises UsageError where caches are cold for what is measured with warm ones alone."""
    if cache == COLD:
        raise UsageError(f"cache is {COLD}, and {what}; leave it {WARM}")
