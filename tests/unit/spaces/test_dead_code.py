"""What nobody reads and what changes nothing is left out, and nothing else is."""

from __future__ import annotations

import pytest

from tests.support.programs import check
from tuner.spaces.rewrite.algorithm import fewest_flops
from tuner.spaces.rewrite.dead_code import constant_border, without_dead_code
from tuner.workload.expression import Binary, BinaryOp, Const, Expression, Scalar, Var
from tuner.workload.spec import parse_spec, workload_from_notation

Extents = dict[str, dict[str, int]]  # of a stage's axes

# Text, and of each stage that is left the extents of its axes.
TRIMMED: list[tuple[str, Extents]] = [
    # Of a tensor read in part that part is made, along every path to it.
    (
        "kernel part(X: f32[9, 7]) -> (Y: f32[3]) { S[i, j] += X[i, j] * X[i, k] for k in 0:7\n "
        "T[i, j] = exp(S[i, j])\n"
        " Y[i] = T[2 * i + 1, 4] for i in 0:3 }",
        {"S": {"i": 5, "j": 1, "k": 7}, "T": {"i": 5, "j": 1}, "Y": {"i": 3}},
    ),
    # Two readers: what either reads, and all between.
    (
        "kernel both(X: f32[9]) -> (Y: f32[2], Z: f32[2]) { T[i] = exp(X[i])\n Y[i] = T[i + 1] "
        "for i in 0:2\n"
        " Z[i] = T[i + 5] + T[6] for i in 0:2 }",
        {"T": {"i": 6}, "Y": {"i": 2}, "Z": {"i": 2}},
    ),
    # Its padding is that of the whole.
    (
        "kernel edge(X: f32[9]) -> (Y: f32[4]) { T[i] = exp(X[i])\n Y[i] = T[i - 2] else 3 for "
        "i in 0:4 }",
        {"T": {"i": 2}, "Y": {"i": 4}},
    ),
    # A reduction reads less once its terms are fewer.
    (
        "kernel chain(X: f32[4], W: f32[40]) -> (Y: f32[4]) { T[i] = exp(W[i])\n Y[i] += (X[i + "
        "r - 20] else 0) * T[r] }",
        {"T": {"i": 7}, "Y": {"i": 4, "r": 7}},
    ),
    # Taps that meet padding alone, in both directions; an intermediate that is read by
    # nobody else goes with them.
    (
        "kernel dilated(X: f32[8], W: f32[3]) -> (Y: f32[8]) { Y[i] += (X[i + 12*r - 12] else "
        "0) * W[r] }",
        {"Y": {"i": 8, "r": 1}},
    ),
    (
        "kernel gone(X: f32[8]) -> (Y: f32[8]) { T[i] = exp(X[i])\n Y[i] = (T[i + 8] else 2) + "
        "X[i] for i in 0:8 }",
        {"Y": {"i": 8}},
    ),
    # Steps that leap over it, from one beside it to another; those that begin and end within it.
    (
        "kernel leap(X: f32[3]) -> (Y: f32[8]) { T[i] = exp(X[i])\n Y[i] = (T[4*i - 1] else 2) "
        "for i in 0:8 }",
        {"Y": {"i": 8}},
    ),
    (
        "kernel steps(X: f32[9]) -> (Y: f32[8]) { T[i] = exp(X[i])\n Y[i] = (T[4*i - 2] else 2) "
        "for i in 0:8 }",
        {"T": {"i": 5}, "Y": {"i": 8}},
    ),
    ("kernel none(X: f32[8]) -> (Y: f32[8]) { Y[i] += X[i + r + 8] else 0 for i in 0:8, "
    "r in 0:5 }", {"Y": {"i": 8, "r": 1}}),
    ("kernel ones(X: f32[4]) -> (Y: f32[1]) { Y[i] *= X[r - 9] else 1 for i in 0:1, r "
    "in 0:64 }", {"Y": {"i": 1, "r": 4}}),
    # The greatest of a window: one of the constants beside it is as good as all.
    ("kernel most(X: f32[4]) -> (Y: f32[2]) { Y[i] max= -(X[r + i - 9] else 1) for i in 0:2, r "
    "in 0:64 }",
     {"Y": {"i": 2, "r": 5}}),
    ("kernel least(X: f32[4]) -> (Y: f32[2]) { Y[i] min= X[(r + i) // 2] else 0 for i in 0:2, r "
    "in 0:64 }",
     {"Y": {"i": 2, "r": 8}}),
    # What is left along one axis leaves less along another.
    (
        "kernel corner(X: f32[3, 3]) -> (Y: f32[1]) {\n"
        " Y[i] max= X[(r + s + 2) // 2, s + 2] else 1 for i in 0:1, r in 0:64, s in 0:31 }",
        {"Y": {"i": 1, "r": 4, "s": 1}},
    ),
    # Most rows see no element of X, and are one sum: of them one is done, and the others apart.
    (
        "kernel rows(X: f32[3, 5], W: f32[5, 6]) -> (Y: f32[40, 6]) { Y[i, j] += (X[i - 7, k] "
        "else 2) * W[k, j] for i in 0:40 }",
        {"Yo": {"i": 1, "j": 6, "k": 5}, "Yi": {"i": 3, "j": 6, "k": 5}, "Y": {"i": 40, "j": 6}},
    ),
    (
        "kernel zeros(X: f16[3, 5], W: f16[5, 6]) -> (Y: f16[40, 6]) { Y[i, j] += (X[i, k] else "
        "0) * W[k, j] for i in 0:40 }",
        {"Yo": {"i": 1, "j": 6, "k": 1}, "Yi": {"i": 3, "j": 6, "k": 5}, "Y": {"i": 40, "j": 6}},
    ),
    (
        "kernel two(X: f32[2], Z: f32[3]) -> (Y: f32[60, 70]) {\n"
        " Y[i, j] max= (X[i] else 1) + (Z[j + r] else -2) for i in 0:60, j in 0:70, r in 0:2 }",
        {
            "Yo": {"i": 1, "j": 70, "r": 2}, "Yi": {"i": 2, "j": 70, "r": 2}, "Y": {"i": 60,
            "j": 70},
        },
    ),
    # Most terms of a row are the same for having left X behind: one of them is done,
    # with the first that stays.
    (
        "kernel tail(X: f32[40, 3], W: f32[40]) -> (Y: f32[1]) {\n"
        " Y[i] += W[k] * (X[k, r - 2] else -2) for i in 0:1, k in 0:40, r in 0:64 }",
        {"Y": {"i": 1, "k": 40, "r": 3}},
    ),
    ("kernel ints(X: i8[3], W: i8[5, 40]) -> (Y: i32[5]) { "
     "Y[i] += i32(W[i, k]) * (i32(X[r - 2] else -2)) for k in 0:40, r in 0:64 }",
     {"Y": {"i": 5, "k": 40, "r": 3}}),
    ("kernel one(X: f16[40, 1], W: f16[40]) -> (Y: f16[1]) { "
     "Y[i] += W[k] * (X[k, r - 40] else 2) for i in 0:1, k in 0:40, r in 0:64 }",
     {"Y": {"i": 1, "k": 40, "r": 1}}),
    ("kernel most(X: f32[40, 3], W: f32[40]) -> (Y: f32[1]) { "
     "Y[i] min= W[k] * (X[k, r - 2] else -2) for i in 0:1, k in 0:40, r in 0:64 }",
     {"Y": {"i": 1, "k": 40, "r": 3}}),
    # Few terms, but each of them a function; the others are a number by then.
    ("kernel dear(X: f64[4]) -> (Y: f64[3]) { Y[i] += tanh(X[2*r - 2] else 1) for i in 0:3, r "
    "in 0:31 }",
     {"Y": {"i": 3, "r": 2}}),
    # Nothing has to be chosen: fewer terms are enough of a reason.
    ("kernel little(X: f32[3], W: f32[8]) -> (Y: f32[1]) { Y[i] min= W[k] * (X[r - 2] else -2) "
    "for i in 0:1, k in 0:8, r in 0:9}",
     {"Y": {"i": 1, "k": 8, "r": 3}}),
    ("kernel single(X: f32[4], W: f32[9]) -> (Y: f32[2]) { Y[i] += W[k] * (X[r + 9] else 2) for "
    "i in 0:2, k in 0:9, r in 0:4 }",
     {"Y": {"i": 2, "k": 9, "r": 1}}),
    # All terms of an axis are the same.
    ("kernel times(X: f32[4], W: f32[40]) -> (Y: f32[2]) { "
     "Y[i] += exp(W[k]) * (X[r + 9] else 2) for i in 0:2, k in 0:40, r in 0:64 }",
     {"Y": {"i": 2, "k": 40, "r": 1}}),
]  # fmt: skip
WHOLE = [
    "kernel window(X: f32[8], W: f32[3]) -> (Y: f32[8]) { Y[i] += (X[i + r - 1] else 0) * W[r] }",
    "kernel count(X: f32[4]) -> (Y: f32[2]) { Y[i] += X[r + i - 9] else 1 for i in 0:2, r "
    "in 0:64 }",
    "kernel product(X: f32[4], W: f32[40]) -> (Y: f32[1]) { "
    "Y[i] *= W[k] * (X[r + 2] else 2) for i in 0:1, k in 0:40, r in 0:64 }",
    "kernel half(X: f32[40, 40], W: f32[40]) -> (Y: f32[1]) { "
    "Y[i] += W[k] * (X[k, r] else 2) for i in 0:1, k in 0:40, r in 0:64 }",
    "kernel place(X: f32[40, 4], W: f32[64]) -> (Y: f32[1]) { "
    "Y[i] += (X[k, r] else 2) * W[r] for i in 0:1, k in 0:40, r in 0:64 }",
    "kernel beside(X: f32[4], W: f32[64]) -> (Y: f32[1]) { Y[i] max= (X[r] else 0) * W[r] for i "
    "in 0:1, r in 0:64 }",
    "kernel two(X: f32[4], W: f32[5]) -> (Y: f32[1]) { Y[i] max= (X[r] else 0) + (W[63 - r] "
    "else 0) for i in 0:1, r in 0:64 }",
    "kernel place(X: f32[4]) -> (Y: f32[1]) { Y[i] max= (X[r] else 0) + f32(r) for i in 0:1, r "
    "in 0:64 }",
    "kernel look(X: f32[9], I: i32[4]) -> (Y: f32[4]) { T[i] = exp(X[i])\n Y[i] = "
    "T[clamp(I[i], 0, 8)] }",
    "kernel other(X: f32[3, 5], W: f32[40, 5]) -> (Y: f32[40]) { Y[i] += (X[i, k] else 2) * "
    "W[i, k] }",
    "kernel few(X: f32[3, 5], W: f32[5]) -> (Y: f32[40]) { Y[i] += (X[i, k] else 2) * W[k] for "
    "i in 0:40 }",
    "kernel map(X: f32[3]) -> (Y: f32[40]) { Y[i] = X[i] else 2 for i in 0:40 }",
    "kernel most(X: f32[30, 5]) -> (Y: f32[40]) { Y[i] += X[i, k] else 2 for i in 0:40, k in 0:5 }",
    "kernel out(X: f32[9]) -> (T: f32[9], Y: f32[3]) { T[i] = exp(X[i])\n Y[i] = T[i] for "
    "i in 0:3 }",
]


# Maps that are one constant at most of their points: ends of the box that is left, as
# (axis, which end, where), and the constant.
BORDERED: list[tuple[str, list[tuple[str, BinaryOp, int]], Scalar]] = [
    (
        "kernel corner(X: f64[3]) -> (Y: f64[97, 31]) { Y[i, j] = abs(X[(i + j + 1) // 2] else "
        "-2) for i in 0:97, j in 0:31 }",
        [("i", "le", 4), ("j", "le", 4)],
        Const(2.0, "float64"),
    ),
    (
        "kernel row(X: f32[3, 40]) -> (Y: f32[70, 40]) { Y[i, j] = (X[i - 20, j] else 0.5) + 1 "
        "for i in 0:70 }",
        [("i", "ge", 20), ("i", "le", 22)],
        Const(1.5, "float32"),
    ),
]
VARIED = [
    "kernel two(X: f32[3], W: f32[90]) -> (Y: f32[90, 31]) { Y[i, j] = W[i] * (X[j - 28] else "
    "0) for i in 0:90, j in 0:31 }",
    "kernel half(X: f32[40, 50]) -> (Y: f32[40, 90]) { Y[i, j] = X[i, j] else 0 for j in 0:90 }",
    "kernel few(X: f32[3]) -> (Y: f32[90]) { Y[i] = X[i] else 0 for i in 0:90 }",
    "kernel sum(X: f32[3, 9]) -> (Y: f32[900]) { Y[i] += X[i, k] else 2 for i in 0:900 }",
]


def extents(expression: Expression) -> Extents:
    return {stage.name: stage.extents for stage in expression.stages}


@pytest.mark.parametrize(("text", "left"), TRIMMED)
def test_what_does_not_count_is_left_out(text: str, left: Extents) -> None:
    workload = workload_from_notation(text, {})
    made = without_dead_code(workload.expression)
    assert extents(made) == left
    assert extents(without_dead_code(made)) == left
    check(workload, configs=4)


@pytest.mark.parametrize(("text", "box", "value"), BORDERED)
def test_a_map_is_a_constant_but_in_a_box(
    text: str, box: list[tuple[str, BinaryOp, int]], value: Scalar
) -> None:
    workload = workload_from_notation(text, {})
    conditions = tuple(Binary(op, Var(axis), Const(end, "int64")) for axis, op, end in box)
    assert constant_border(workload.expression.stages[0], workload.expression.shapes) == (
        conditions,
        value,
    )
    check(workload, configs=6)


@pytest.mark.parametrize("text", VARIED)
def test_a_map_that_varies_is_computed(text: str) -> None:
    expression = workload_from_notation(text, {}).expression
    assert constant_border(expression.stages[0], expression.shapes) is None


@pytest.mark.parametrize("text", WHOLE)
def test_what_may_count_stays(text: str) -> None:
    workload = workload_from_notation(text, {})
    assert without_dead_code(workload.expression) == workload.expression


@pytest.mark.parametrize(
    "spec",
    ["matmul:M=7,N=5,K=3", "batch_matmul:B=2,M=3,N=4,K=5",
    "conv2d:N=1,H=9,W=9,CI=4,CO=8,KH=3,KW=3,stride=2,pad=1",
     "conv2d_transpose:N=1,H=5,W=5,CI=4,CO=3,KH=3,KW=3,stride=2,pad=1", "softmax:M=4,N=9",
     "layer_norm:M=4,N=9",
     "max_pool2d:N=1,H=9,W=9,C=4,KH=3,KW=3,stride=2,pad=1",
     "avg_pool2d:N=1,H=9,W=9,C=4,KH=3,KW=3,stride=2,pad=1",
     "attention:B=1,H=2,S=5,D=4,causal=true"],
)  # fmt: skip
def test_operators_are_whole(spec: str) -> None:
    workload = parse_spec(spec)
    assert without_dead_code(workload.expression) == workload.expression


def test_a_dilated_window_on_a_small_image_costs_the_taps_that_meet_it() -> None:
    small = parse_spec("conv2d:N=1,H=4,W=4,CI=8,CO=8,KH=3,KW=3,pad=6,dilation=6")
    taps = without_dead_code(small.expression).stages[0]
    assert [axis.extent for axis in taps.reduce_axes if axis.extent == 3] == []
    assert fewest_flops(small) * 9 == small.expression.flops
    check(small, configs=8)
