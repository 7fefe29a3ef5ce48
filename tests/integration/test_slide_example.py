"""The example that trains a classifier of many classes: each network learns the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.slide.hashing import NONE, Draws, HashTables, most_named, sign_codes
from examples.slide.layers import (
    MakeKernel,
    Output,
    change_rows,
    initial,
    narrowed,
    widened,
)
from examples.slide.outputs import Dense, Slide, directions
from examples.slide.train import LABELS, SMOKE, drawn, main, network, outputs, report, train
from tests.support.loaded_kernels import loaded
from tuner.app.workloads import as_workload

SIZES = replace(
    SMOKE, features=200, classes=96, batch=8, depth=16, active=100, drawn=4, groups=4, tables=3,
    bits=1, room=96,
)  # fmt: skip
COUNTS = np.arange(1, SIZES.classes + 1)


@pytest.fixture
def kernel(tmp_path: Path) -> MakeKernel:
    """Makes kernels of default schedules."""
    numbers = count()

    @cache
    def made(source: str, extents: tuple[tuple[str, int], ...]) -> Callable[..., Any]:
        shapes = dict(extents) or None
        workload = as_workload(source, shapes=shapes, constants=(), numerics="strict")
        return loaded(workload, tmp_path / f"lib{next(numbers)}.so")

    return lambda source, shapes: made(source, tuple((shapes or {}).items()))


class EveryBucket:
    """Hash tables that choose all classes."""

    def fill(self, codes: np.ndarray[Any, Any]) -> None:
        pass

    def alike(self, codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.tile(np.arange(SIZES.classes, dtype=np.int32), (len(codes), 1))


@pytest.mark.parametrize("narrow", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_step_on_all_classes_is_that_of_the_dense_layer(
    kernel: MakeKernel, monkeypatch: pytest.MonkeyPatch, narrow: bool
) -> None:
    """Where all classes are chosen, both compute the same weights; drawn ones count once.
    The same steps again give the same bits."""
    data = drawn(SIZES, SIZES.batch, 0)
    chosen, again = (Slide(SIZES, COUNTS, kernel, 3, narrow=narrow) for _ in range(2))
    for each in (chosen, again):
        monkeypatch.setattr(each, "_tables", EveryBucket())
    layers: list[Output] = [chosen, Dense(SIZES, kernel, 3), again]
    networks = [network(SIZES, output, kernel, 3) for output in layers]
    for made in networks:
        for _ in range(3):
            made.step(data)
    rtol, atol = (3e-2, 3e-3) if narrow else (1e-4, 1e-6)
    weights = (made.weights() for made in networks)
    for got, want, same, start in zip(*weights, initial(SIZES, 3), strict=True):
        assert not np.allclose(want, start)
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)
        np.testing.assert_array_equal(got, same)


@pytest.mark.slow
def test_layers_learn_and_the_report_names_them(kernel: MakeKernel) -> None:
    sizes = replace(SIZES, active=24, drawn=12, bits=3, room=12)
    data, progress = drawn(sizes, 256, 0), {}
    counts = np.bincount(data.labels.ravel(), minlength=sizes.classes)
    for name, make in outputs(sizes, counts, kernel, threads=1, seed=1).items():
        made = network(sizes, make(), kernel, 1)
        progress[name] = train(made, data, data, batch=sizes.batch, steps=60, every=20)
        assert progress[name][-1].precision > 3 * LABELS / sizes.classes
        assert [each.steps for each in progress[name]] == [20, 40, 60]
    lines = report(progress).splitlines()
    assert [line[:16].strip() for line in lines] == ["", *progress]


def test_labels_come_first_then_classes_named_most_often() -> None:
    first, often = np.array([[7]], np.int32), np.array([[1, 2, 3, 2, 3, 3, NONE]], np.int32)
    times = np.zeros(8, np.int32)
    chosen = [sorted(most_named(first, often, n, times)[0].tolist()) for n in (1, 2, 3, 4, 6)]
    assert chosen == [[7], [3, 7], [2, 3, 7], [1, 2, 3, 7], [NONE, NONE, 1, 2, 3, 7]]


def test_a_label_that_tables_name_too_is_chosen_once() -> None:
    first = np.array([[5, 5, 9]], np.int32)
    often = np.array([[9, 5, 4, 4, 0]], np.int32)
    times = np.zeros(10, np.int32)
    assert sorted(most_named(first, often, 4, times)[0].tolist()) == [0, 4, 5, 9]
    assert sorted(most_named(first, often, 3, times)[0].tolist()) == [4, 5, 9]
    assert not times.any()


def test_codes_are_the_signs_of_sums() -> None:
    sums = np.array([[1, -1, 0, 5, 2, -3], [-1, -2, -3, 4, -5, np.inf]], np.float32)
    for given in (sums, narrowed(sums)):
        assert sign_codes(given, 2).tolist() == [[0b101, 0b011], [0b000, 0b101]]
        assert sign_codes(given, 6).tolist() == [[1, 0, 1, 1, 1, 0], [0, 0, 0, 1, 0, 1]]


def test_buckets_have_the_classes_of_their_code() -> None:
    tables = HashTables(classes=50, tables=3, codes=4, room=5, seed=0)
    codes = (np.arange(50)[:, None] + np.arange(3)).astype(np.int32) % 4
    tables.fill(codes)
    alike = tables.alike(np.array([[1, 1, 2], [0, 3, 3]], np.int32)).reshape(2, 3, 5)
    assert (np.take_along_axis(codes, alike[0].T, 0) == [1, 1, 2]).all()
    assert (np.take_along_axis(codes, alike[1].T, 0) == [0, 3, 3]).all()
    assert all(len(set(bucket)) == 5 for bucket in alike.reshape(-1, 5).tolist())


def test_drawn_classes_stand_for_all() -> None:
    """Over many draws the sum over drawn classes, weighted, is that over all not chosen."""
    counts = np.array([50, 5, 1, 0, 0, 20, 3, 9])
    draws, logits = Draws(counts, samples=2, count=3, groups=2, seed=0), np.linspace(-1, 2, 8)
    own = np.array([[1, NONE], [0, 5]], np.int32)
    sums = []
    for _ in range(4000):
        active = draws.beside(own)
        terms = np.exp(logits[active.classes] + active.offsets)
        assert all(
            len(set(row[~np.isinf(offset)])) == (~np.isinf(offset)).sum()
            for row, offset in zip(active.classes, active.offsets, strict=True)
        )
        sums.append(terms.sum(1))
    np.testing.assert_allclose(np.mean(sums, 0), np.exp(logits).sum(), rtol=0.03)


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("depth", [1, 16, 37])
def test_rows_that_are_named_change_and_no_others(depth: int, narrow: bool) -> None:
    """As often as they are named, with their elements of the bias; by numbers that bfloat16
    has, so that nothing is rounded. Samples share names in some places, one to nine of them."""
    rng = np.random.default_rng(0)
    matrix, bias = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((20, depth), 20))
    names = np.repeat(rng.integers(2, 18, (9, 6)), np.arange(1, 10), 0).astype(np.int32)
    names[:, :2] = rng.integers(2, 18, (len(names), 2))
    weights = rng.integers(-1, 2, names.shape).astype(np.float32)
    x = rng.integers(-2, 3, (len(names), depth)).astype(np.float32)
    want, want_bias = matrix.copy(), bias.copy()
    np.subtract.at(want, names, 0.5 * weights[..., None] * x[:, None])
    np.subtract.at(want_bias, names, 0.5 * weights)
    assert np.abs(want).max() < 64
    assert (want != matrix)[np.unique(names)].mean() > 0.5
    changed = narrowed(matrix) if narrow else matrix
    change_rows(changed, names, weights, x, 0.5, bias)
    np.testing.assert_array_equal(widened(changed) if narrow else changed, want)
    np.testing.assert_array_equal(bias, want_bias)


def after_one_step(start: float, step: float, turn: int = 0, depth: int = 61) -> Any:
    """What becomes of 4000 rows of bfloat16, (4000, depth), of which each is named once."""
    matrix = narrowed(np.full((4000, depth), start, np.float32))
    names, weights = np.arange(4000, dtype=np.int32)[:, None], np.ones((4000, 1))
    change_rows(matrix, names, weights, np.full((4000, depth), step), 1.0, turn=turn)
    return widened(matrix)


@pytest.mark.parametrize(
    "start, step",
    [(1.0, 1e-3), (1.0, -1e-3), (-1.0, 5e-3), (2.0, 3e-6), (0.0, 0.123), (2**-128, 2**-135)],
)
def test_bfloat16_is_rounded_to_either_side_and_right_in_the_mean(
    start: float, step: float
) -> None:
    """Among normal and subnormal numbers and across a power of two."""
    got, want = after_one_step(start, step), np.float32(start) - np.float32(step)
    low = narrowed(np.array([want], np.float32))
    around = np.sort(widened(np.array([low[0] - 1, low[0], low[0] + 1], np.uint16)))
    below, above = around[around <= want].max(), around[around > want].min()
    assert set(np.unique(got)) <= {below, above}
    share = (float(want) - float(below)) / (float(above) - float(below))
    deviation = np.sqrt(share * (1 - share) / got.size)
    assert 0 < share < 1
    assert abs((got == above).mean() - share) < 5 * deviation


def test_roundings_of_elements_and_rows_know_nothing_of_each_other() -> None:
    """At a half, so that each is as likely up as down: no pair of them agrees too often."""
    signs = np.sign(after_one_step(1.0, 2**-9) - (1 - 2**-9))
    assert set(np.unique(signs)) == {-1, 1}
    later = np.sign(after_one_step(1.0, 2**-9, turn=4000) - (1 - 2**-9))
    depth = signs.shape[1]
    pairs = [(signs[:, near:], signs[:, : depth - near]) for near in (1, 2, 16, 32)]
    pairs += [(signs[near:], signs[:-near]) for near in (1, 2, 7)]
    for left, right in [*pairs, (signs, later)]:
        assert abs((left * right).mean()) < 5 / np.sqrt(left.size)
    assert np.abs(signs.mean(0)).max() < 5 / np.sqrt(len(signs))
    assert np.abs(signs.mean(1)).max() < 5 / np.sqrt(depth)


def test_the_same_turn_rounds_alike_and_another_does_not() -> None:
    first, again, other = (after_one_step(1.0, 1e-3, turn) for turn in (7, 7, 8))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first[1:], other[:-1])  # the same places, counted on
    assert (first != other).mean() > 0.1


def test_steps_below_the_resolution_of_bfloat16_add_up() -> None:
    """Of two rows in turn, so that no steps are summed before they are rounded."""
    matrix = narrowed(np.full((2, 512), 1.5, np.float32))
    names, x = np.tile(np.array([[0], [1]], np.int32), (128, 1)), np.ones((256, 512), np.float32)
    change_rows(matrix, names, np.ones(names.shape), x, 1e-3)
    np.testing.assert_allclose(widened(matrix).mean(1), 1.5 - 0.128, atol=0.01)


@pytest.mark.parametrize("turn", range(8))
def test_what_is_not_finite_stays_so(turn: int) -> None:
    """Infinities keep their sign, and NaNs with any bits stay NaN."""
    bits = np.array([0x7F80, 0xFF80, 0x7FC0, 0x7F81, 0x7FFF, 0xFFFF, 0x3F80, 0x7F80], np.uint16)
    matrix = np.tile(bits, (2, 1))
    x = np.array([[1, 1, 1, 1, 1, 1, 0, np.inf]], np.float32)
    change_rows(matrix, np.array([[0]], np.int32), np.ones((1, 1)), x, 1.0, turn=turn)
    inf, nan = np.inf, np.nan
    np.testing.assert_array_equal(widened(matrix[0]), [inf, -inf, nan, nan, nan, nan, 1, nan])
    np.testing.assert_array_equal(matrix[1], bits)
    x.view(np.uint32)[:] = 0x7FFFFFFF  # a NaN of which noise would make -0
    change_rows(matrix, np.array([[1]], np.int32), np.ones((1, 1)), x, 1.0, turn=turn)
    assert np.isnan(widened(matrix[1])).all()


def test_bfloat16_is_the_nearest_at_the_start() -> None:
    numbers = np.array([1.0, 1.001, 1.007, -3.14159, 1e-20, -1e30, 65504.7], np.float32)
    wide = widened(narrowed(numbers))
    np.testing.assert_allclose(wide, numbers, rtol=2**-8)
    assert wide[:3].tolist() == [1.0, 1.0, 1.0078125]


def test_directions_ignore_what_all_elements_share() -> None:
    assert (directions(SIZES, 0).sum(0) == 0).all()


@pytest.mark.long
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_DB", f"sqlite:///{tmp_path}/tuner.db")
    progress = main(["--smoke", "--only", "SLIDE"])
    assert progress["SLIDE"][-1].precision > 0.2
