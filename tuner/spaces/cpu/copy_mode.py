"""How a nest reads an operand: from where it lies, or from a copy made first."""

from __future__ import annotations

from enum import Enum


class CopyMode(Enum):
    """The value is the word that configs store."""

    NONE = "none"  # read in place
    PAD = "pad"  # a copy with its padding made real
    PACK = "pack"  # a part at a time in the order of reading, under the loops it depends on
    PACK_ROOT = "pack_root"  # all of it in the order of reading, before any loop
    PAD_PARTS = "pad_parts"  # as PAD, one part for each step of the axes that all reads move with
