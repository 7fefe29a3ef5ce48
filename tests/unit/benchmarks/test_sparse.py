"""The benchmark of sparse kernels: where sparse pays, and that a wrong library is found."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.kernels.report import TITLES
from benchmarks.kernels.suite import read_suite
from benchmarks.sparse import PAIRS, SUITE, check, crossing, in_turn
from tuner.measure.rivals.rivals import RIVALS
from tuner.workload.spec import parse_spec


def test_sparse_pays_up_to_where_it_is_as_fast_as_dense() -> None:
    assert crossing([0.01, 0.1, 0.5], [0.25, 4.0, 8.0]) == pytest.approx(0.01 * 10**0.5)
    assert crossing([0.01, 0.1], [0.1, 1.0]) == pytest.approx(0.1)
    assert crossing([0.01, 0.1], [1.2, 4.0]) is None
    assert crossing([0.01, 0.1], [0.2, 0.9]) == 1


@pytest.mark.parametrize("name", PAIRS)
def test_dense_products_are_of_the_same_matrices(name: str) -> None:
    """What both give has as many elements, or more of the dense one."""
    pair = PAIRS[name]
    sparse, dense = (parse_spec(spec).expression for spec in (pair.sparse(0.5), pair.dense))
    counts = [np.prod(each.tensor(each.outputs[0]).shape) for each in (sparse, dense)]
    assert counts[0] in (counts[1], counts[1] // 2)


def test_times_are_medians_in_turn() -> None:
    calls: list[str] = []

    def clock(name: str, times: list[float]) -> float:
        calls.append(name)
        return times.pop()

    clocks = {name: lambda number, n=name, t=[9.0, 1.0, 2.0, 1.0]: clock(n, t) for name in "ab"}
    assert in_turn(clocks, 3) == {"a": 2.0, "b": 2.0}
    assert calls == ["a", "b"] * 4


def test_a_library_that_computes_something_else_is_found() -> None:
    workload = read_suite(SUITE, ["spmv_any"])[0].workload
    own = np.array([1.0, -2.0], np.float32)
    check("scipy", workload, own * (1 + 1e-6), own)
    check("scipy", workload, np.array([1.0, -2.0]), (own.view(np.uint32) >> 16).astype(np.uint16))
    for wrong in ([1.0, -1.9], [np.nan, -2.0]):
        with pytest.raises(AssertionError, match="scipy is off by"):
            check("scipy", workload, np.array(wrong), own)


def test_every_library_has_a_title() -> None:
    assert set(RIVALS) <= set(TITLES)
