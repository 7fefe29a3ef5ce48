"""A bit mask of a config's knob values, for fast filters: superimposed coding.

Each knob=value of a config sets two of 62 bits. A trial whose mask lacks a bit of the
filter's mask cannot match. The mask is part of the indexes that lists scan, where
testing it costs a fraction of reading the row and its JSON. Rows that pass are then
compared exactly. With 25 knobs 55% of the bits are set, so that a filter by two knobs
reads one in ten of the trials that do not match.

The masks are stored: a change of their computation needs a migration that computes them
again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

BITS = 62  # what fits a signed 64-bit integer, with room to spare
SET_PER_KNOB = 2


def knob_bits(knobs: Mapping[str, int | str | Sequence[int]]) -> int:
    """The mask of `knobs`, 0 for none. A tuple counts as the list that JSON makes of it."""
    bits = 0
    for name, value in knobs.items():
        digest = hashlib.sha256(json.dumps([name, value], separators=(",", ":")).encode()).digest()
        for byte in digest[:SET_PER_KNOB]:
            bits |= 1 << byte % BITS
    return bits
