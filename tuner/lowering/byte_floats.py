"""Floats of 8 bits as float32, by the bits of wider formats.

Formats: Micikevicius et al., "FP8 Formats for Deep Learning" (2022). E5M2 is the upper
half of IEEE's float16. E4M3 has no infinity, and NaN where all bits but the sign are set.
"""

from __future__ import annotations

import tvm
from tvm import tirx

_SIGN_AND_REST = -0x78100000  # the sign of a float32, and the 7 bits from bit 20 on
_SCALE = 2.0**120  # of exponents counted from -127, to those counted from -7


def e4m3(byte: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
    """The float32 that a uint8 of E4M3 stands for.

    Its exponent and mantissa are those of a tiny float32, subnormal ones of subnormal
    ones, which a product with a power of two makes the number.
    """
    signed = tirx.reinterpret("int8", byte).astype("int32")
    shifted = tirx.shift_left(signed, tirx.const(20, "int32"))
    tiny = tirx.bitwise_and(shifted, tirx.const(_SIGN_AND_REST, "int32"))
    number = tirx.reinterpret("float32", tiny) * tirx.const(_SCALE, "float32")
    size = tirx.bitwise_and(signed, tirx.const(0x7F, "int32"))
    nan = tirx.const(float("nan"), "float32")
    return tirx.Select(tirx.EQ(size, tirx.const(0x7F, "int32")), nan, number)


def e5m2(byte: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
    """The float32 that a uint8 of E5M2 stands for."""
    upper = tirx.shift_left(byte.astype("uint16"), tirx.const(8, "uint16"))
    return tirx.reinterpret("float16", upper).astype("float32")
