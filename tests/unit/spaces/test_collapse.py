"""Axes that every access walks one after the other are joined, and nothing else is."""

from __future__ import annotations

import pytest

from tests.support.programs import check
from tuner.spaces.rewrite.collapse import collapsed
from tuner.workload.spec import parse_spec, workload_from_notation

# Text, extents of its symbols, and of each stage the axes that are left: spatial, then
# of the reduction.
JOINED = [
    ("kernel map(X: f32[A, B, C]) -> (Y: f32[A, B, C]) { Y[i, j, l] = abs(X[i, j, l]) }", [[("ijl",
    105)]]),
    # All of a product's rows, and both of its reductions.
    (
        "kernel mm(X: f32[A, B, C, D], W: f32[C, D, E]) -> (Y: f32[A, B, E]) { Y[i, j, n] += "
        "X[i, j, k, l] * W[k, l, n] }",
        [[("ij", 15), ("n", 2), ("kl", 28)]],
    ),
    # An axis of one point moves nothing.
    ("kernel one(X: f32[A, B]) -> (Y: f32[A, B]) { Y[i, j] += X[i + u, j] for "
    "u in 0:1 }", [[("ij", 15), ("u", 1)]]),
    ("kernel turn(X: f32[A, B, C]) -> (Y: f32[C, A, B]) { Y[l, i, j] = X[i, j, l] }", [[("l", 7),
    ("ij", 15)]]),
    ("kernel two(X: f32[A, B]) -> (Z: f32[A, B]) { Y[i, j] += X[i, j] * f32(u) for u in 0:3\n "
    "Z[l, m] = Y[l, m] }",
     [[("ij", 15), ("u", 3)], [("lm", 15)]]),
    # Both walk one dimension of a tensor, the first one slower.
    ("kernel view(X: f32[15, C], Z: f32[A, B, C]) -> (Y: f32[A, B, C]) { Y[i, j, l] = "
    "X[i * 5 + j, l] + Z[i, j, l] }",
     [[("ijl", 105)]]),
    ("kernel sum(X: f32[15, C], Z: f32[A, B]) -> (Y: f32[C]) { Y[l] += X[i * 5 + j, l] * Z[i, "
    "j] }",
     [[("l", 7), ("ij", 15)]]),
    # The names of what is joined may be taken, and be alike.
    ("kernel like(X: f32[A, B, C, D]) -> (Y: f32[C, D, A, B]) { Y[k, lj, kl, j] = X[kl, "
    "j, k, lj] }",
     [[("klj", 28), ("kljx", 15)]]),
    ("kernel name(X: f32[A, B, C], b: f32[C]) -> (Y: f32[A, B, C]) { Y[i, j, ij] = X[i, j, ij] "
    "+ b[ij] }",
     [[("ijx", 15), ("ij", 7)]]),
]  # fmt: skip
APART = [
    "kernel bias(X: f32[A, B], b: f32[B]) -> (Y: f32[A, B]) { Y[i, j] = X[i, j] + b[j] }",
    "kernel turned(X: f32[A, B]) -> (Y: f32[B, A]) { Y[j, i] = X[i, j] }",
    "kernel rows(X: f32[A, B]) -> (Y: f32[A]) { Y[i] += X[i, j] }",
    "kernel window(X: f32[A, B]) -> (Y: f32[A, B]) { Y[i, j] += X[i, j + u - 1] else 0 for "
    "u in 0:3 }",
    "kernel place(X: f32[A, B]) -> (Y: f32[A, B]) { Y[i, j] = X[i, j] * f32(j) }",
    "kernel part(X: f32[A, C]) -> (Y: f32[A, B]) { Y[i, j] = X[i, j] for j in 0:5 }",
    "kernel square(X: f32[A, A]) -> (Y: f32[A]) { Y[i] = X[i, i] }",
    "kernel look(X: f32[A, B], I: i32[A]) -> (Y: f32[A, B]) { Y[i, j] = X[clamp(I[i], 0, 2), j] }",
    "kernel overlap(X: f32[13, C]) -> (Y: f32[A, B, C]) { Y[i, j, l] = X[i * 4 + j, l] }",
    "kernel faster(X: f32[15], Z: f32[A, B]) -> (Y: f32[A, B]) { Y[i, j] = X[j * 3 + i] + Z[i, "
    "j] }",
    "kernel other(X: f32[15], b: f32[B]) -> (Y: f32[A, B]) { Y[i, j] = X[i * 5 + j] + b[j] }",
    # One reader of what another stage wrote whole keeps both apart.
    "kernel read(X: f32[A, B]) -> (Y: f32[A, B], Z: f32[B, A]) { Y[i, j] = exp(X[i, j])\n Z[j, "
    "i] = Y[i, j] }",
]
EXTENTS = {"A": 3, "B": 5, "C": 7, "D": 4, "E": 2}


def extents(text: str) -> dict[str, int]:
    return {
        name: extent for name, extent in EXTENTS.items() if f"{name}," in text or f"{name}]" in text
    }


@pytest.mark.parametrize(("text", "axes"), JOINED)
def test_what_always_comes_together_is_joined(text: str, axes: list[list[tuple[str, int]]]) -> None:
    workload = workload_from_notation(text, extents(text))
    made = collapsed(workload.expression)
    assert [
        [(axis.name, axis.extent) for axis in (*stage.axes, *stage.reduce_axes)]
        for stage in made.stages
    ] == axes
    assert [tensor.nbytes for tensor in made.inputs] == [
        tensor.nbytes for tensor in workload.expression.inputs
    ]
    assert collapsed(made) == made
    check(workload, configs=4)


@pytest.mark.parametrize("text", APART)
def test_what_is_told_apart_anywhere_stays_apart(text: str) -> None:
    expression = workload_from_notation(text, extents(text)).expression
    assert collapsed(expression) == expression


@pytest.mark.parametrize(
    "spec",
    ["conv2d:N=2,H=3,W=3,CI=4,CO=5,KH=1,KW=1",
    "conv2d:N=2,H=3,W=3,CI=4,CO=5,KH=1,KW=1,layout=NCHW,bias=true,act=relu",
     "batch_norm:N=2,H=3,W=3,C=4,layout=NCHW", "global_avg_pool2d:N=2,H=3,W=3,C=5",
     "attention:B=2,H=2,S=3,D=4"],
)  # fmt: skip
def test_programs_of_joined_axes_compute_the_expression(spec: str) -> None:
    workload = parse_spec(spec)
    assert collapsed(workload.expression) != workload.expression
    check(workload, configs=4)
