"""Dtypes of elements: names, widths, ranges, and those in which narrow ones are computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

DType = Literal[
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint64",
    "uint32", "uint16", "uint8", "bool",
]  # fmt: skip
# Floats of 8 bits, by their names in ml_dtypes. No tensor has them: `Bitcast` takes the
# bytes of one of uint8 for such numbers, which are computed in float32.
ByteFloat = Literal["float8_e4m3fn", "float8_e5m2"]

# Least and greatest value of each integer dtype.
INTEGER_RANGES: Mapping[str, tuple[int, int]] = {
    "int8": (-(2**7), 2**7 - 1),
    "uint8": (0, 2**8 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint64": (0, 2**64 - 1),
}
# Spellings of dtypes in the notation.
DTYPE_NAMES: Mapping[str, DType] = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u64": "uint64",
    "u32": "uint32",
    "u16": "uint16",
    "u8": "uint8",
    "float64": "float64",
    "float32": "float32",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "int64": "int64",
    "int32": "int32",
    "int16": "int16",
    "int8": "int8",
    "uint64": "uint64",
    "uint32": "uint32",
    "uint16": "uint16",
    "uint8": "uint8",
    "bool": "bool",
}
# Their spellings, which only `bitcast` takes.
BYTE_FLOAT_NAMES: Mapping[str, ByteFloat] = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
FLOATS = ("float16", "bfloat16", "float32", "float64")  # narrow to wide
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
# Narrow types are widened before arithmetic.
COMPUTED_IN: Mapping[str, DType] = {
    "float16": "float32",
    "bfloat16": "float32",
    "int8": "int32",
    "uint8": "int32",
    "int16": "int32",
    "uint16": "int32",
}
# Integers whose arithmetic wraps around at zero. Narrower ones are computed in int32.
UNSIGNED: tuple[DType, ...] = ("uint32", "uint64")
DTYPE_BYTES: Mapping[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint64": 8,
    "uint32": 4,
    "uint16": 2,
    "uint8": 1,
    "bool": 1,
}
