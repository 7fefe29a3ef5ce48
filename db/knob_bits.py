"""Which knobs have which values, in one small number: superimposed coding.

Each knob=value of a config sets two bits of 62, so that a trial whose number lacks a
bit of what is looked for cannot match. The number is in the indexes that lists walk,
where testing it costs a fraction of reading the row and its JSON; rows that pass are
then compared exactly. With 25 knobs 55% of the bits are set: of the trials that differ,
a filter by two knobs reads one in ten.

The numbers are stored: whoever changes how they are made also writes a migration that
makes them again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

BITS = 62  # what fits a signed 64-bit integer, with room to spare
SET_PER_KNOB = 2


def knob_bits(knobs: Mapping[str, int | str | Sequence[int]]) -> int:
    """The bits of all of `knobs`, 0 of none. A tuple counts as the list that JSON makes of it."""
    found = 0
    for name, value in knobs.items():
        digest = hashlib.sha256(json.dumps([name, value], separators=(",", ":")).encode()).digest()
        for each in digest[:SET_PER_KNOB]:
            found |= 1 << each % BITS
    return found
