"""What persistent products share with the rest: epilogues in C, and programs without them."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.support.spaces import shared_space
from tests.support.targets import SM_90
from tuner.lowering.cuda.codegen import cuda_kernels
from tuner.lowering.cuda.persistent_epilogue import (
    CONVERSIONS,
    FUNCTIONS,
    INFIX,
    UNARY,
    WHOLE_FUNCTIONS,
    axis_values,
    c_expression,
)
from tuner.spaces.by_target import space_of
from tuner.spaces.program.epilogues import (
    BINARY_OPERATORS,
    CASTS,
    UNARY_OPERATORS,
    WHOLE_BINARY,
    WHOLE_UNARY,
    as_stored,
    is_expressible,
)
from tuner.spaces.program.program import Specialize
from tuner.spaces.program.specialized import without_specialized
from tuner.workload.dtypes import DType
from tuner.workload.expression import (
    Axis,
    Binary,
    BinaryOp,
    Cast,
    Const,
    Read,
    Scalar,
    Select,
    Tensor,
    Unary,
    UnaryOp,
    Var,
)
from tuner.workload.spec import parse_spec, workload_from_notation

SUM = Read("S", (Var("i"), Var("j")))
BIAS = Read("bias", (Var("j"),))
ZERO = Const(0.0, "float32")
DTYPES: dict[str, DType] = {
    "S": "float16", "bias": "float16", "order": "int64", "counts": "int32", "codes": "int8",
}  # fmt: skip
COUNT = Read("counts", (Var("j"),))


def test_every_operator_of_an_epilogue_has_its_c() -> None:
    assert UNARY.keys() == UNARY_OPERATORS
    assert WHOLE_FUNCTIONS.keys() <= WHOLE_UNARY | WHOLE_BINARY
    assert CONVERSIONS.keys() == set(CASTS)
    assert INFIX.keys() | FUNCTIONS.keys() == BINARY_OPERATORS
    assert set(get_args(UnaryOp)) >= UNARY_OPERATORS and set(get_args(BinaryOp)) >= BINARY_OPERATORS


@pytest.mark.parametrize(
    ("epilogue", "expressible"),
    [
        (SUM, True),
        (Binary("add", Cast("float32", SUM), Cast("float32", BIAS)), True),
        (Select(Binary("gt", SUM, ZERO), SUM, ZERO), True),
        (Unary("asinh", SUM), False),
        (Binary("pow", SUM, ZERO), False),
        (Binary("mul", SUM, Cast("float32", Var("j"))), False),
        (Cast("float16", SUM), False),
        (Binary("add", SUM, Cast("float32", Read("order", (Var("j"),)))), False),
        (Binary("add", SUM, Cast("float32", COUNT)), True),
        (Cast("int8", Binary("max", SUM, ZERO)), True),
        (Binary("add", SUM, COUNT), False),
        (Binary("div", COUNT, COUNT), False),
        (Unary("abs", COUNT), True),
        (Unary("exp", COUNT), False),
        (Binary("and", SUM, SUM), False),
        (Select(Binary("gt", COUNT, Const(1, "int32")), SUM, COUNT), False),
        (Read("bias", (Binary("floordiv", Var("j"), Const(2, "int64")),)), False),
        (Read("bias", (Var("j"),), ZERO), False),
    ],
)
def test_what_an_epilogue_may_be(epilogue: Scalar, expressible: bool) -> None:
    assert is_expressible(epilogue, "S", DTYPES) == expressible


def test_storing_rounds_once() -> None:
    rounded = Cast("float16", SUM)
    assert as_stored(rounded, "float16") == as_stored(Cast("float32", rounded), "float16") == SUM
    assert as_stored(rounded, "float32") == rounded
    assert as_stored(Cast("int8", SUM), "int8") == Cast("int8", SUM)  # which may wrap


def test_an_epilogue_in_c() -> None:
    tensors = {
        "R": Tensor(name="R", shape=(4, 3, 8), dtype="float16"),
        "S": Tensor(name="S", shape=(), dtype="float32"),
    }
    values = axis_values([Axis(name="a", extent=4), Axis(name="b", extent=3)], "row")
    assert values == {"a": "(row / 3)", "b": "(row % 3)"}
    read = Read("R", (Var("a"), Var("b"), Var("j")))
    scaled = Binary("max", Binary("mul", Read("S", ()), Const(0.5, "float32")), read)
    assert c_expression(scaled, "S", values | {"j": "column"}, tensors) == (
        "tuner_maximum((sum * 0.5f), (float)R[column * 1 + (row % 3) * 8 + (row / 3) * 24])"
    )
    assert (
        c_expression(Const(float("-inf"), "float32"), "S", {}, {}) == "__int_as_float(0xff800000)"
    )


def test_integers_of_an_epilogue_in_c() -> None:
    tensors = {
        "S": Tensor(name="S", shape=(), dtype="int32"),
        "z": Tensor(name="z", shape=(8,), dtype="int8"),
    }
    shifted = Binary("max", Binary("sub", Read("S", ()), Cast("int32", Read("z", (Var("j"),)))),
                     Const(-3, "int32"))  # fmt: skip
    scaled = Binary("mul", Cast("float32", shifted), Const(0.5, "float32"))
    whole = "max((sum - (int)z[column * 1]), -3)"
    given = {"j": "column"}
    assert c_expression(Unary("abs", shifted), "S", given, tensors) == f"abs({whole})"
    assert c_expression(Cast("int8", Unary("round", scaled)), "S", given, tensors) == (
        f"((int)(signed char)(int)((nearbyintf((((float)({whole})) * 0.5f)))))"
    )


def test_other_kernels_read_and_write_what_a_specialised_one_does() -> None:
    """Of an attention the scores are such a kernel, softmax and the sum of values are not."""
    space = shared_space("attention:B=1,H=2,S=64,D=64,dtype=float16", SM_90)
    config = {"sketch": next(name for name in space.algorithms if ":persistent" in name)}
    program = space.program(config)
    rest = without_specialized(program)
    (step,) = (step for step in program.steps if isinstance(step, Specialize))
    scores = step.kernel.output.tensor
    assert scores in {tensor.name for tensor in rest.inputs}
    assert scores not in {buffer.name for buffer in rest.buffers}
    assert not {block.buffer for block in rest.blocks} & {scores, f"{scores}_acc"}
    launches = cuda_kernels(program, SM_90, "k").launches
    places = [place for place, launch in enumerate(launches) if scores in launch.buffers]
    assert launches[places[0]].maps and len(places) > 1


def test_sums_of_bytes_are_short_and_float32_is_rounded() -> None:
    """Of floats of 8 bits a stage's sums begin at zero; of tf32 those of a tile do."""
    text = """kernel q(X: u8[256, 256], W: u8[256, 256]) -> (Y: f32[256, 256]) {
      Y[i, j] += bitcast(e4m3, X[i, k]) * bitcast(e5m2, W[j, k])
    }"""
    made = {}
    for workload in (
        workload_from_notation(text, {}, numerics="tensor"),
        parse_spec("dense:M=256,N=256,K=256,numerics=tensor"),
    ):
        space = space_of(workload, SM_90, 1)
        row = next(name for name in space.sketches if name.endswith(":persistent"))
        source = cuda_kernels(space.program({"sketch": row}), SM_90, "k")
        kind = "k32.f32.e4m3.e5m2" if "e4m3" in source.text else "k8.f32.tf32.tf32"
        assert kind in source.text
        made[kind] = (
            "parts[fragment], " in source.text,
            *(m.rounded for m in source.launches[0].maps),
        )
    assert made == {
        "k32.f32.e4m3.e5m2": (True, False, False, False),
        "k8.f32.tf32.tf32": (False, True, True, False),
    }
