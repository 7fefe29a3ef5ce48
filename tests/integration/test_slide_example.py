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

from examples.slide.hashing import NONE, Draws, HashTables, most_named
from examples.slide.layers import MakeKernel, Output, change_rows, initial, joined, parts
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


@pytest.mark.parametrize("narrow", [False, True])
def test_a_step_on_all_classes_is_that_of_the_dense_layer(
    kernel: MakeKernel, monkeypatch: pytest.MonkeyPatch, narrow: bool
) -> None:
    """Where all classes are chosen, both compute the same weights; drawn ones count once."""
    data = drawn(SIZES, SIZES.batch, 0)
    chosen = Slide(SIZES, COUNTS, kernel, 3, narrow=narrow)
    monkeypatch.setattr(chosen, "_tables", EveryBucket())
    layers: list[Output] = [chosen, Dense(SIZES, kernel, 3)]
    pair = [network(SIZES, output, kernel, 3) for output in layers]
    for each in pair:
        for _ in range(3):
            each.step(data)
    rtol, atol = (3e-2, 3e-3) if narrow else (1e-4, 1e-6)
    weights = (each.weights() for each in pair)
    for got, want, start in zip(*weights, initial(SIZES, 3), strict=True):
        assert not np.allclose(want, start)
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)


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


@pytest.mark.parametrize("depth", [16, 37])
def test_rows_that_are_named_change_and_no_others(depth: int) -> None:
    """As often as they are named, with their elements of the bias."""
    rng = np.random.default_rng(0)
    matrix, bias = rng.standard_normal((20, depth)).astype(np.float32), np.ones(20, np.float32)
    names = rng.integers(2, 18, (6, 5)).astype(np.int32)
    weights = rng.standard_normal(names.shape).astype(np.float32)
    x = rng.standard_normal((6, depth)).astype(np.float32)
    want, want_bias = matrix.copy(), bias.copy()
    np.subtract.at(want, names, 0.5 * weights[..., None] * x[:, None])
    np.subtract.at(want_bias, names, 0.5 * weights)
    unnamed = np.setdiff1d(np.arange(20), names)
    before = matrix[unnamed]
    change_rows((matrix,), names, weights, x, 0.5, bias)
    np.testing.assert_allclose(matrix, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(bias, want_bias, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(matrix[unnamed], before)


def test_rows_in_two_parts_change_like_float32() -> None:
    """So steps far below the resolution of bfloat16 add up."""
    matrix = np.linspace(-3, 3, 20 * 16, dtype=np.float32).reshape(20, -1)
    in_parts, names = parts(matrix), np.full((256, 1), 7, np.int32)
    x, weights, before = np.ones((256, 16), np.float32), np.ones((256, 1)), matrix.copy()
    for each in ((matrix,), in_parts):
        change_rows(each, names, weights, x, 1e-3)
    np.testing.assert_allclose(before[7] - matrix[7], 0.256, rtol=1e-4)
    np.testing.assert_array_equal(joined(*in_parts), matrix)
    np.testing.assert_array_equal(in_parts[0], parts(matrix)[0])


def test_numbers_are_rounded_to_the_nearest_and_nothing_is_lost() -> None:
    numbers = np.array([1.0, 1.001, 1.007, -3.14159, 1e-20, -1e30, 65504.7], np.float32)
    nearest, rest = parts(numbers)
    wide = (nearest.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose(wide, numbers, rtol=2**-8)
    assert wide[:3].tolist() == [1.0, 1.0, 1.0078125]
    np.testing.assert_array_equal(joined(nearest, rest), numbers)


def test_directions_ignore_what_all_elements_share() -> None:
    assert (directions(SIZES, 0).sum(0) == 0).all()


@pytest.mark.long
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_DB", f"sqlite:///{tmp_path}/tuner.db")
    progress = main(["--smoke", "--only", "SLIDE"])
    assert progress["SLIDE"][-1].precision > 0.2
