"""The benchmark of sparse kernels: where sparse pays, and that a wrong library is found."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from benchmarks.kernels.report import TITLES
from benchmarks.kernels.suite import read_suite
from benchmarks.sparse import PAIRS, SUITE, WARM, check, crossing, in_turn, said
from tuner.measure.rivals.rivals import RIVALS, RivalError
from tuner.workload.spec import parse_spec


def test_sparse_pays_up_to_where_it_is_as_fast_as_dense() -> None:
    assert crossing([0.01, 0.1, 0.5], [0.25, 4.0, 8.0]) == pytest.approx(0.01 * 10**0.5)
    assert crossing([0.01, 0.1], [0.1, 1.0]) == pytest.approx(0.1)
    assert crossing([0.01, 0.1], [1.2, 4.0]) is None
    assert crossing([0.01, 0.5], [0.2, 0.9]) == 0.5
    assert said(0.05) == "below a density of 5.0%" and said(0.5).startswith("at least below")
    assert said(None) == "at none of the densities from 1% on"


@pytest.mark.parametrize("name", PAIRS)
def test_dense_products_are_of_the_same_matrices(name: str) -> None:
    """What both give has as many elements, or more of the dense one."""
    pair = PAIRS[name]
    sparse, dense = (parse_spec(spec).expression for spec in (pair.sparse(0.5), pair.dense))
    counts = [np.prod(each.tensor(each.outputs[0]).shape) for each in (sparse, dense)]
    assert counts[0] in (counts[1], counts[1] // 2)


def test_times_are_medians_in_turn() -> None:
    """Each sample comes behind calls that bring a contender's data into the caches."""
    calls: list[tuple[str, int]] = []
    times = {"a": iter([9.0, 1e-3, 9.0, 1.0, 9.0, 3.0, 9.0, 2.0]), "b": iter([4.0] * 8)}

    def clock(name: str, number: int) -> float:
        calls.append((name, number))
        return next(times[name])

    assert in_turn({name: partial(clock, name) for name in "ab"}, 3) == {"a": 2.0, "b": 4.0}
    assert calls[4:] == [("a", 2 * WARM), ("a", 2), ("b", WARM), ("b", 1)] * 3


def test_a_library_that_computes_something_else_is_found() -> None:
    workload = read_suite(SUITE, ["spmv_any"])[0].workload
    own = np.array([1.0, -2.0], np.float32)
    check(workload, own * (1 + 1e-6), own)
    check(workload, np.array([1.0, -2.0]), (own.view(np.uint32) >> 16).astype(np.uint16))
    for wrong in ([1.0, -1.9], [np.nan, -2.0]):
        with pytest.raises(RivalError, match="it is off by"):
            check(workload, np.array(wrong), own)


def test_every_library_has_a_title() -> None:
    assert set(RIVALS) <= set(TITLES)
