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

from examples.slide.hashing import HashTables, most_named
from examples.slide.layers import Dense, MakeKernel, Slide, by_row, initial, to_bfloat16
from examples.slide.train import LABELS, SMOKE, drawn, main, networks, report, train
from tests.support.targets import host_target
from tuner.app.workloads import as_workload
from tuner.lowering.compiler import compile_kernel
from tuner.runtime.link import Function, link
from tuner.runtime.loader import Library

SIZES = replace(SMOKE, features=200, classes=96, batch=8, depth=16, active=96, tables=3, bits=3)


@pytest.fixture
def kernel(tmp_path: Path) -> MakeKernel:
    """Makes kernels of default schedules."""
    numbers, target = count(), host_target()

    @cache
    def made(source: str, extents: tuple[tuple[str, int], ...]) -> Callable[..., Any]:
        shapes = dict(extents) or None
        workload = as_workload(source, shapes=shapes, constants=(), numerics="strict")
        compiled = compile_kernel(
            workload=workload, target=target, threads=1, config=None, symbol="k"
        )
        function = Function(
            symbol="k",
            inputs=workload.expression.inputs,
            outputs=tuple(map(workload.expression.tensor, workload.expression.outputs)),
            object_code=compiled.object_code,
            isa=target.isa,
            threads=1,
            tvm_symbol="__tvm_ffi_k",
        )
        path = tmp_path / f"lib{next(numbers)}.so"
        path.write_bytes(link("slide", [function]))
        return Library(path).function("k")

    return lambda source, shapes: made(source, tuple((shapes or {}).items()))


def test_a_step_on_all_classes_is_that_of_the_dense_layer(kernel: MakeKernel) -> None:
    """Where hash tables choose all classes, both compute the same weights."""
    data = drawn(SIZES, SIZES.batch, 0)
    chosen = Slide(SIZES, data.features.shape[1], kernel, 3)
    every = Dense(SIZES, data.features.shape[1], kernel, 3)
    for network in (chosen, every):
        for _ in range(3):
            network.step(data)
    for got, want, start in zip(chosen.weights(), every.weights(), initial(SIZES, 3), strict=True):
        assert not np.allclose(want, start)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_networks_learn_and_the_report_names_them(kernel: MakeKernel) -> None:
    sizes = replace(SIZES, active=24)
    data, progress = drawn(sizes, 256, 0), {}
    for name, make in networks(sizes, kernel, threads=1, seed=1).items():
        progress[name] = train(make(), data, data, batch=sizes.batch, steps=60, every=20)
        assert progress[name][-1].precision > 3 * LABELS / sizes.classes
        assert [each.steps for each in progress[name]] == [20, 40, 60]
    lines = report(progress).splitlines()
    assert [line[:16].strip() for line in lines] == ["", *progress]


def test_labels_come_first_then_classes_named_most_often() -> None:
    first, often = np.array([[7]], np.int32), np.array([[1, 2, 3, 2, 3, 3]], np.int32)
    last = np.array([[7, 5, 6, 8]], np.int32)
    chosen = [set(most_named(first, often, last, n)[0].tolist()) for n in (1, 2, 3, 4)]
    assert chosen == [{7}, {7, 3}, {7, 3, 2}, {7, 3, 2, 1}]


def test_classes_of_the_same_code_are_active() -> None:
    tables = HashTables(classes=50, codes=4, active=12, seed=0)
    codes = np.repeat(np.arange(50)[:, None] % 4, 3, 1).astype(np.int32)
    tables.fill(codes)
    labels = np.array([[3], [4]], np.int32)
    active = tables.active(labels, np.array([[1, 1, 1], [2, 2, 2]], np.int32))
    assert active.shape == (2, 12)
    assert all(len(set(row)) == 12 for row in active.tolist())
    assert (active == labels).any(1).all()
    assert ((active % 4 == [[1], [2]]).sum(1) == 11).all()


def test_rows_are_grouped_by_their_number() -> None:
    rows, pointers, order = by_row(np.array([[5, 2], [2, 9]], np.int32))
    assert rows.tolist() == [2, 5, 9]
    assert pointers.tolist() == [0, 2, 3, 4]
    assert order.tolist() == [1, 2, 0, 3]


def test_narrow_weights_are_the_nearest() -> None:
    numbers = np.array([1.0, 1.00390625, -3.14159, 1e-20], np.float32)
    wide = (to_bfloat16(numbers).astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose(wide, numbers, rtol=2**-8)
    assert wide[0] == 1
    assert wide[1] == 1  # a tie goes to the even number


@pytest.mark.long
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_DB", f"sqlite:///{tmp_path}/tuner.db")
    progress = main(["--smoke", "--only", "SLIDE"])
    assert progress["SLIDE"][-1].precision > 0.2
