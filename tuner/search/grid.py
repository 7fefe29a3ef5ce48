"""Grid search: every point once, in strides that spread the first trials over the space."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

import numpy as np

from tuner.search.domain import Domain
from tuner.search.ledger import Row
from tuner.search.random import SequenceSearcher
from tuner.search.setup import SearchSetup

# 2**64 over the golden ratio. Strides of this fraction leave the most even gaps.
_GOLDEN = 0x9E3779B97F4A7C15


def grid_searcher(setup: SearchSetup) -> SequenceSearcher:
    """The searcher of the strategy `grid`. The seed only sets the first point."""
    return SequenceSearcher(setup.domain, grid_sequence(setup.domain, setup.seed))


def grid_sequence(domain: Domain, seed: int) -> Iterator[Row]:
    """Every point of the domain once."""
    size = domain.size
    stride = max(1, (size * _GOLDEN) >> 64)
    while gcd(stride, size) != 1:
        stride += 1
    rank = int(np.random.default_rng(seed).integers(min(size, 1 << 62)))
    for _ in range(size):
        yield domain.unrank(rank)
        rank = (rank + stride) % size
