"""Functions of constants are the constants that the kernel would compute, in its dtype."""

from __future__ import annotations

import math

import pytest

from tuner.spaces.rewrite.constant_folding import fold_constant, fold_through_selects
from tuner.workload.expression import Binary, Cast, Const, Scalar, Select, Unary, Var

ONE = Const(1.0, "float32")
TENTH = Const(0.1, "float32")


@pytest.mark.parametrize(
    ("node", "value"),
    [
        (Unary("tanh", Const(1.0, "float64")), Const(math.tanh(1.0), "float64")),
        (Unary("exp", ONE), Const(2.7182817459106445, "float32")),
        (Unary("abs", Const(-2, "float32")), Const(2.0, "float32")),
        (Binary("mul", TENTH, TENTH), Const(0.010000000707805157, "float32")),
        (Binary("max", ONE, TENTH), ONE),
        (Select(Binary("gt", ONE, TENTH), Var("i"), ONE), Var("i")),
        (Select(Binary("le", ONE, TENTH), Var("i"), TENTH), TENTH),
        (Select(Binary("lt", Var("i"), ONE), TENTH, TENTH), TENTH),
        (Binary("min", Binary("min", Var("i"), ONE), ONE), Binary("min", Var("i"), ONE)),
        (Cast("float32", Const(0.1, "float16")), Const(0.0999755859375, "float32")),
    ],
)
def test_of_constants(node: Scalar, value: Scalar) -> None:
    assert fold_constant(node) == value


@pytest.mark.parametrize(
    "node",
    [
        Unary("tanh", Var("i")),
        Unary("log", Const(-1.0, "float32")),
        Unary("log", Const(0.0, "float64")),
        Unary("exp", Const(1000.0, "float64")),
        Unary("exp", Const(100.0, "float32")),
        Unary("abs", Const(-2, "int32")),
        Binary("add", Const(1, "int64"), Const(2, "int64")),
        Binary("add", ONE, Const(1.0, "float64")),
        Binary("div", ONE, Const(3.0, "float32")),
        Cast("int32", ONE),
        Cast("float32", Const(0.1, "bfloat16")),
        Select(Binary("lt", Var("i"), ONE), ONE, TENTH),
        Select(Binary("lt", Var("i"), ONE), Const(0.0, "float32"), Const(-0.0, "float32")),
        Binary("max", Binary("min", Var("i"), ONE), ONE),
        Const(1.0, "float32"),
    ],
)
def test_what_stays(node: Scalar) -> None:
    assert fold_constant(node) == node


def test_functions_go_into_choices_whose_other_side_is_constant() -> None:
    inside, x = Binary("ge", Var("i"), Const(2, "int64")), Var("x")
    padded = Select(inside, x, Const(-2, "float32"))
    assert fold_through_selects(Unary("abs", Binary("add", padded, ONE))) == Select(
        inside, Unary("abs", Binary("add", x, ONE)), Const(1.0, "float32")
    )
    either = Unary("tanh", Select(inside, x, Var("y")))
    assert fold_through_selects(either) == either
