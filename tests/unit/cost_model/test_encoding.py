"""The knob encoding: fixed width, distinct rows for distinct points, -1 for what a sketch lacks."""

from __future__ import annotations

import numpy as np

from tests.support.synthetic_spaces import small_space
from tuner.cost_model.encoding import KnobEncoding
from tuner.search.domain import Domain


def test_distinct_points_have_distinct_rows_of_one_width() -> None:
    space = small_space()
    encode = KnobEncoding(space)
    rows = encode(Domain(space).points())
    assert rows.shape == (space.size, encode.width) and rows.dtype == np.float32
    assert np.isfinite(rows).all()
    assert len(np.unique(rows, axis=0)) == space.size


def test_knobs_of_other_sketches_are_marked() -> None:
    space = small_space()
    first = KnobEncoding(space)(space.unrank(0)[None, :])[0]
    assert (first[-1:] == -1).all() and first[0] == 0.0
