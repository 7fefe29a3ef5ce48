"""Sums of products cut for instructions: what is one, and when zeros may stand beyond
the end of an axis."""

from __future__ import annotations

import pytest

from tuner.spaces.rewrite.access import accesses
from tuner.spaces.rewrite.dot_products import (
    factors,
    shared_axes,
    split_reduction,
    split_window,
)
from tuner.workload.dtypes import DType
from tuner.workload.expression import Const, Select, Stage, walk
from tuner.workload.spec import parse_spec, workload_from_notation


def only_stage(text: str) -> tuple[Stage, dict[str, tuple[int, ...]], dict[str, DType]]:
    workload = workload_from_notation(text, {}) if text.startswith("kernel") else parse_spec(text)
    (stage,) = workload.expression.stages
    return (
        stage,
        workload.expression.shapes,
        {tensor.name: tensor.dtype for tensor in workload.expression.inputs},
    )


def test_a_cut_axis_has_steps_of_parts_with_names_of_their_own() -> None:
    stage, shapes, dtypes = only_stage("matmul:M=4,N=5,K=70,dtype=int8")
    (axis,) = shared_axes(stage, accesses(stage, shapes))
    made = split_reduction(stage, axis, (16, 4), shapes, dtypes)
    assert made is not None
    stage, names = made
    assert names == ("kh", "khh")
    assert [(axis.name, axis.extent) for axis in stage.reduce_axes] == [
        ("k", 2),
        ("kh", 16),
        ("khh", 4),
    ]
    assert all(read.pad is not None and read.pad.value == 0 for read in factors(stage) or ())


def test_a_cut_that_divides_pads_nothing() -> None:
    stage, shapes, dtypes = only_stage("matmul:M=4,N=5,K=64,dtype=int8")
    made = split_reduction(stage, stage.reduce_axes[0], (16, 4), shapes, dtypes)
    assert made is not None and all(read.pad is None for read in factors(made[0]) or ())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "kernel w(X: bf16[9, 20], W: bf16[5, 7]) -> (Y: bf16[9, 16, 7]) { Y[n, p, m] += X[n, "
            "p + r] * W[r, m] }",
            "a window, beyond which there may be NaN",
        ),
        (
            "kernel p(X: i8[9, 20], W: i8[30, 7]) -> (Y: i32[9, 7]) { Y[n, m] += X[n, c] * W[c, "
            "m] for c in 0:19 }",
            "a part",
        ),
    ],
)
def test_where_a_tensor_goes_on_beyond_the_axis_there_are_no_zeros(text: str, why: str) -> None:
    stage, shapes, dtypes = only_stage(text)
    axis = stage.reduce_axes[0]
    assert split_reduction(stage, axis, (2,), shapes, dtypes) is None, why
    assert split_reduction(stage, axis, (axis.extent,), shapes, dtypes) is not None


WINDOW = (
    "kernel w(X: i8[9, 20], W: i8[5, 7]) -> (Y: i32[9, 16, 7]) { Y[n, p, m] += X[n, p + r] * "
    "W[r, m] }"
)


def test_of_integers_a_zero_in_one_factor_is_enough() -> None:
    stage, shapes, dtypes = only_stage(WINDOW)
    made = split_reduction(stage, stage.reduce_axes[0], (4,), shapes, dtypes)
    assert made is not None
    pair = factors(made[0])
    assert pair is not None
    assert all(read.pad is not None and read.pad.value == 0 for read in pair)


def test_what_goes_on_beyond_a_window_is_not_read_there() -> None:
    stage, shapes, dtypes = only_stage(WINDOW)
    pair = factors(stage)
    assert pair is not None
    whole, _ = pair
    made = split_window(stage, stage.reduce_axes[0], 4, whole, shapes, dtypes)
    assert made is not None
    split, names, read = made
    assert names == ("rh",) and read.pad is None
    (guarded,) = (node for node in walk(split.body) if isinstance(node, Select))
    assert guarded.then == read and guarded.other == Const(0, "int8")
    inside = split_window(stage, stage.reduce_axes[0], 5, whole, shapes, dtypes)
    assert inside is not None and not any(isinstance(node, Select) for node in walk(inside[0].body))


@pytest.mark.parametrize("spec", ["matmul:M=4,N=5,K=6", "reduce_sum:M=4,N=5,axis=1,dtype=int8"])
def test_what_is_not_widened_or_no_product_is_none(spec: str) -> None:
    assert factors(only_stage(spec)[0]) is None
