"""The benchmark of sparse kernels: where sparse pays, and that a wrong library is found."""

from __future__ import annotations

from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from benchmarks.csr_libraries import CsrProduct
from benchmarks.kernels.report import TITLES
from benchmarks.kernels.suite import read_suite
from benchmarks.sparse import (
    CSR_LIBRARIES,
    PAIRS,
    SAMPLE_S,
    SUITE,
    WARM_S,
    check,
    crossing,
    csr_clocks,
    in_turn,
    said,
)
from tuner.measure.rivals.rivals import RIVALS, RivalError
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import evaluate
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


class Caches:
    """Those of two contenders in one process: the first calls of each find the other's data."""

    COLD, SLOWER, TIMES_S = 2, 3, {"a": 1e-4, "b": 3e-3}  # calls, times, seconds

    def __init__(self) -> None:
        self.now_s, self.holder, self.calls = 0.0, "", 0
        self.chunks: list[tuple[str, int, float]] = []  # each with its seconds

    def clock(self, name: str, number: int) -> float:
        begun_s = self.now_s
        for _ in range(number):
            self.calls = self.calls + 1 if self.holder == name else 0
            self.holder = name
            self.now_s += self.TIMES_S[name] * (self.SLOWER if self.calls < self.COLD else 1)
        self.chunks.append((name, number, self.now_s - begun_s))
        return (self.now_s - begun_s) / number


def test_times_are_medians_in_turn_of_warm_calls() -> None:
    """However long the first calls take, samples come behind as many as take their time."""
    caches = Caches()
    clocks = {name: partial(caches.clock, name) for name in caches.TIMES_S}
    assert in_turn(clocks, 3, lambda: caches.now_s) == pytest.approx(caches.TIMES_S)
    rounds = [list(chunks) for _, chunks in groupby(caches.chunks, lambda chunk: chunk[0])]
    assert len(rounds) == 6
    for *before, (name, number, _) in rounds:
        assert sum(took_s for *_, took_s in before) >= WARM_S
        assert number == max(1, round(SAMPLE_S / caches.TIMES_S[name]))


def test_a_library_that_computes_something_else_is_found() -> None:
    workload = read_suite(SUITE, ["spmv_any"])[0].workload
    own = np.array([1.0, -2.0], np.float32)
    check(workload, own * (1 + 1e-6), own)
    check(workload, np.array([1.0, -2.0]), (own.view(np.uint32) >> 16).astype(np.uint16))
    for wrong in ([1.0, -1.9], [np.nan, -2.0]):
        with pytest.raises(RivalError, match="it is off by"):
            check(workload, np.array(wrong), own)


def test_every_library_has_a_title() -> None:
    assert {*RIVALS, *CSR_LIBRARIES} <= set(TITLES)


@pytest.mark.parametrize("width", [None, 3])
def test_products_for_other_libraries_are_of_the_same_matrices(width: int | None) -> None:
    spec = "M=6,N=5,density=0.4" if width is None else f"M=6,N=5,K={width},density=0.4"
    workload = parse_spec(f"{'spmv' if width is None else 'spmm'}:{spec}")
    inputs = make_inputs(workload.expression, 1)
    product = CsrProduct.of(workload, inputs)
    right = evaluate(workload.expression, inputs)["Y"]
    assert product.shape == (6, 5) and product.width == width
    assert product.result.shape == product.expected().shape == right.shape
    np.testing.assert_allclose(product.expected(), right, rtol=1e-5)


def test_a_library_without_the_product_takes_no_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag, double = (
        parse_spec("embedding_bag:V=16,D=4,B=2,L=3"),
        parse_spec("spmv:M=6,N=5,density=0.4,dtype=float64"),
    )
    for workload in (bag, double):
        assert csr_clocks(workload, 1, {"mkl": tmp_path}) == {}
        assert f"float32 matrices only, and not {workload.spec}" in capsys.readouterr().out
    absent = {"taco": tmp_path}
    assert csr_clocks(parse_spec("spmv:M=6,N=5,density=0.4"), 1, absent) == {}
    assert "taco takes no part: " in capsys.readouterr().out
