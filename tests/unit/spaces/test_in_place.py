"""Which inputs the output of a program may overwrite."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from tests.support.targets import host_target
from tuner.spaces.by_target import space_of
from tuner.spaces.default_schedule import default_program
from tuner.spaces.program.in_place import overwritable
from tuner.spaces.program.program import Program
from tuner.workload.notation import parse
from tuner.workload.spec import workload_from_expression
from tuner.workload.workload import Workload

SHAPES = {"M": 12, "N": 32, "K": 8}


def workload(text: str) -> Workload:
    used = {symbol: extent for symbol, extent in SHAPES.items() if symbol in text.partition("{")[0]}
    return workload_from_expression(parse(text, used), [], "strict")


def programs(text: str, count: int) -> list[Program]:
    """Random ones of the space."""
    space = space_of(workload(text), host_target(), 1)
    rows = space.space.sample(np.random.default_rng(0), count)
    return [space.program(space.space.config(row)) for row in rows]


@pytest.mark.parametrize(
    ("body", "allowed"),
    [
        ("C[i, j] = exp(A[i, j]) * A[i, j] + B[j]", (0,)),
        ("C[i, j] = A[i, j] + A[M - 1 - i, j] + B[j]", ()),  # read elsewhere too
        ("T[i] += A[i, j] C[i, j] = A[i, j] - T[i] + B[j]", ()),  # read before, by the sum
        ("C[i, j] = where(A[i, j] > 0, B[j], A[i, j])", (0,)),
        ("C[i, j] = B[j] + where(i > 0, A[max(i - 1, 0), j], 0)", ()),
    ],
)
def test_what_is_read_at_its_own_place_alone_is_overwritable(
    body: str, allowed: tuple[int, ...]
) -> None:
    text = f"kernel f(A: f32[M, N], B: f32[N]) -> (C: f32[M, N]) {{ {body} }}"
    assert overwritable(default_program(workload(text))) == allowed


def test_another_dtype_is_not_overwritable() -> None:
    text = "kernel c(A: i32[M, N]) -> (C: f32[M, N]) { C[i, j] = f32(A[i, j]) }"
    assert overwritable(default_program(workload(text))) == ()


RESIDUAL = (
    "kernel f(A: f32[M, K], B: f32[K, N], R: f32[M, N]) -> (C: f32[M, N]) {"
    " T[i, j] += A[i, k] * B[k, j] C[i, j] = max(T[i, j] + R[i, j], 0) }"
)


def test_overlapping_tiles_write_what_they_read_again() -> None:
    """Of a product with a residual, the residual where each element is computed once."""
    both = set()
    for program in programs(RESIDUAL, 60):
        (output,) = program.outputs
        points = sum(
            prod(axis.extent for axis in block.axes)
            for block in program.blocks
            if block.buffer == output.name
        )
        allowed = overwritable(program)
        assert allowed in ((), (2,))
        assert not allowed or points == prod(output.shape)
        both.add(allowed)
    assert both == {(), (2,)}
