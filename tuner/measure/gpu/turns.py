"""Turns on a device: what is timed there and what a caller has run never overlap."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager

from tuner.measure import turns
from tuner.runtime.cuda_driver import VISIBLE

SLICE = "MIG-"  # begins the names of slices


def turn(facts: Mapping[str, int | str]) -> AbstractContextManager[None]:
    """Have the device of these facts alone, among this user's processes, for the block.

    Slices of one GPU are devices of their own. Raises as `tuner.measure.turns.turn` does.
    """
    named = os.environ.get(VISIBLE, "")
    device = f"{facts['pci']}-{named}" if named.startswith(SLICE) else str(facts["pci"])
    return turns.turn(f"gpu-{device}")
