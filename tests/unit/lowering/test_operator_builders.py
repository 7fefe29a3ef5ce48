"""Every scalar operator is lowered to TVM."""

from __future__ import annotations

from typing import get_args

import pytest
from tvm import tirx

from tuner.lowering import math_functions
from tuner.lowering.scalars import BINARY_BUILDERS
from tuner.spaces.program.program import MathFunctions
from tuner.workload.expression import BinaryOp, UnaryOp
from tuner.workload.scalar_operators import BINARY_OPERATORS, UNARY_OPERATORS


def test_every_binary_operator_has_a_builder() -> None:
    assert set(BINARY_BUILDERS) == set(BINARY_OPERATORS)


@pytest.mark.parametrize("op", get_args(BinaryOp))
def test_a_binary_builder_gives_the_dtype_of_its_row(op: BinaryOp) -> None:
    row = BINARY_OPERATORS[op]
    dtype = "bool" if op in ("and", "or") else "int32" if row.is_integral else "float32"
    built = BINARY_BUILDERS[op](tirx.Var("a", dtype), tirx.Var("b", dtype))
    assert str(built.ty) == ("bool" if row.is_comparison else dtype)


# `lower` rounds to bfloat16 itself, by its bits.
@pytest.mark.parametrize("op", [op for op in UNARY_OPERATORS if op != "bfloat16"])
@pytest.mark.parametrize("how", get_args(MathFunctions))
def test_every_unary_operator_is_built(op: UnaryOp, how: MathFunctions) -> None:
    dtype = "bool" if op == "not" else "float32"
    result = "bool" if op == "isnan" else dtype
    assert str(math_functions.unary(op, tirx.Var("x", dtype), how).ty) == result
