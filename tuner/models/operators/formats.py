"""Number formats that models store one to a byte, and that kernels only convert: floats of
4, 6 and 8 bits and integers of 2 and 4 bits.

A tensor of such a format is one of uint8 or int8. Operators that move elements take the
bytes as they are. The others take converted ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tuner.models.operators.scalars import (
    Elem,
    bitcast,
    bitwise,
    cast_to,
    minimum,
    unary,
    where,
)
from tuner.workload.dtypes import FLOATS, DType
from tuner.workload.expression import Unary

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounding:
    """How a conversion treats what a format does not hold, as ONNX's Cast has it."""

    saturate: bool = True  # to the greatest number instead of infinity or NaN
    mode: str = "up"  # of powers of two: up, down or nearest


class Format(Protocol):
    """A number format that kernels hold in bytes."""

    @property
    def name(self) -> str:
        """The name of its NumPy dtype in ml_dtypes."""

    @property
    def storage(self) -> DType:
        """The dtype of the tensors that hold it."""

    def stored(self, array: Array) -> Array:
        """An array of the format as one of its storage."""

    def typed(self, array: Array) -> Array:
        """An array of its storage in the format's NumPy dtype."""

    def decoded(self, code: Elem) -> Elem:
        """The number that a stored element stands for, as float32 or int32."""

    def encoded(self, number: Elem, rounding: Rounding) -> Elem:
        """The stored element of a number, as int32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Word:
    """A float as the integer of its bits."""

    integer: DType
    mantissa_bits: int
    bias: int  # of the exponent


_WORDS: Mapping[DType, _Word] = {
    "float32": _Word(integer="int32", mantissa_bits=23, bias=127),
    "float64": _Word(integer="int64", mantissa_bits=52, bias=1023),
}
_NAN, _INFINITY = 0x7FC00000, 0x7F800000  # bits of float32


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallFloat:
    """A float with a sign, an exponent and a mantissa, rounded to nearest, ties to even."""

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    greatest: int  # code of the greatest finite number
    infinity: int | None = None  # code; None: there is none
    nan: int | None = None  # code of one NaN; None: there is none
    has_negative_zero: bool = True
    storage: DType = "uint8"

    @property
    def _sign(self) -> int:
        return 1 << (self.exponent_bits + self.mantissa_bits)

    def stored(self, array: Array) -> Array:
        return array.view(np.uint8)

    def typed(self, array: Array) -> Array:
        return array.view(np.dtype(getattr(ml_dtypes, self.name)))

    def decoded(self, code: Elem) -> Elem:
        size = bitwise("bitand", code, self._sign - 1)
        shift = 23 - self.mantissa_bits
        bits = bitwise("shl", size, shift) + ((127 - self.bias) << 23)
        if self.has_negative_zero and self.nan is not None:
            bits = where(size > self.greatest, _NAN, bits)
        if self.infinity is not None:
            bits = where(size.equals(self.infinity), _INFINITY, bits)
        # Below the smallest exponent the mantissa counts steps.
        step = 2.0 ** (1 - self.bias - self.mantissa_bits)
        small = cast_to("float32", size) * step
        number = where(size < (1 << self.mantissa_bits), small, bitcast("float32", bits))
        number = where(bitwise("bitand", code, self._sign).differs(0), -number, number)
        if self.nan is not None and not self.has_negative_zero:
            number = where(code.equals(self.nan), bitcast("float32", size + _NAN), number)
        return number

    def encoded(self, number: Elem, rounding: Rounding) -> Elem:
        if number.dtype not in FLOATS:
            number = cast_to("float32", number)
        word = _WORDS[number.dtype]
        size = unary("abs", number)
        smallest = 2.0 ** (1 - self.bias)  # with the full mantissa
        code = where(size < smallest, self._steps(size), self._rounded_bits(size, word))
        beyond = self.greatest
        if not rounding.saturate:
            codes = (self.infinity, self.nan, self.greatest)
            beyond = next(code for code in codes if code is not None)
        code = where(code > self.greatest, beyond, code)
        negative = bitcast(word.integer, number) < 0
        if self.has_negative_zero:
            code = where(negative, code + self._sign, code)
        else:
            is_number = code.differs(0) & code.differs(self.nan or 0)
            code = where(negative & is_number, code + self._sign, code)
        nan = self._sign if self.nan is None else self.nan  # without NaN it is a zero
        return where(Elem(Unary("isnan", number.node), "bool"), nan, code)

    def _steps(self, size: Elem) -> Elem:
        """The code of a number below the smallest exponent."""
        steps = unary("round", minimum(size, 2.0 ** (1 - self.bias)) * self._steps_in_one)
        return cast_to("int32", steps)

    @property
    def _steps_in_one(self) -> float:
        return 2.0 ** (self.bias - 1 + self.mantissa_bits)

    def _rounded_bits(self, size: Elem, word: _Word) -> Elem:
        """The code of a number from the smallest exponent on, perhaps beyond the greatest."""
        shift = word.mantissa_bits - self.mantissa_bits
        bits = bitcast(word.integer, size)
        odd = bitwise("bitand", bitwise("shr", bits, shift), 1)
        rounded = bitwise("shr", bits + ((1 << (shift - 1)) - 1) + odd, shift)
        code = rounded - ((word.bias - self.bias) << self.mantissa_bits)
        return cast_to("int32", minimum(code, self.greatest + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerOfTwo:
    """E8M0: the exponent of float32 by itself, without a sign; 255 is NaN."""

    name: str = "float8_e8m0fnu"
    storage: DType = "uint8"

    def stored(self, array: Array) -> Array:
        return array.view(np.uint8)

    def typed(self, array: Array) -> Array:
        return array.view(np.dtype(getattr(ml_dtypes, self.name)))

    def decoded(self, code: Elem) -> Elem:
        subnormal = 1 << 22  # 2^-127
        bits = where(code.equals(0), subnormal, bitwise("shl", code, 23))
        return bitcast("float32", where(code.equals(255), _NAN, bits))

    def encoded(self, number: Elem, rounding: Rounding) -> Elem:
        bits = bitcast("int32", cast_to("float32", number))
        exponent = bitwise("bitand", bitwise("shr", bits, 23), 0xFF)
        fraction = bitwise("bitand", bits, 0x7FFFFF)
        half = 0x400000
        match rounding.mode:
            case "up":
                is_more = fraction > 0
            case "down":
                is_more = fraction < 0
            case "nearest":
                is_more = (fraction > half) | (fraction.equals(half) & (exponent > 0))
            case mode:
                raise ValueError(f"rounds powers of two by {mode!r}")
        more = where(is_more, exponent + 1, exponent)
        if rounding.saturate:
            more = minimum(more, 254)
        return where(exponent.equals(255), 255, more)


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallInteger:
    """An integer of a few bits, in a byte by itself. Conversions to it keep the low bits."""

    name: str
    low: int
    high: int

    @property
    def storage(self) -> DType:
        return "int8" if self.low < 0 else "uint8"

    def stored(self, array: Array) -> Array:
        return array.astype(self.storage)

    def typed(self, array: Array) -> Array:
        return array.astype(np.dtype(getattr(ml_dtypes, self.name)))

    def decoded(self, code: Elem) -> Elem:
        return code

    def encoded(self, number: Elem, rounding: Rounding) -> Elem:
        whole = cast_to("int32", number)
        return bitwise("bitand", whole - self.low, self.high - self.low) + self.low


SMALL_FLOATS = (
    SmallFloat(
        name="float8_e4m3fn", exponent_bits=4, mantissa_bits=3, bias=7, greatest=0x7E, nan=0x7F
    ),
    SmallFloat(
        name="float8_e4m3fnuz", exponent_bits=4, mantissa_bits=3, bias=8, greatest=0x7F, nan=0x80,
        has_negative_zero=False,
    ),
    SmallFloat(
        name="float8_e5m2", exponent_bits=5, mantissa_bits=2, bias=15, greatest=0x7B,
        infinity=0x7C, nan=0x7E,
    ),
    SmallFloat(
        name="float8_e5m2fnuz", exponent_bits=5, mantissa_bits=2, bias=16, greatest=0x7F, nan=0x80,
        has_negative_zero=False,
    ),
    SmallFloat(name="float6_e2m3fn", exponent_bits=2, mantissa_bits=3, bias=1, greatest=0x1F),
    SmallFloat(name="float6_e3m2fn", exponent_bits=3, mantissa_bits=2, bias=3, greatest=0x1F),
    SmallFloat(name="float4_e2m1fn", exponent_bits=2, mantissa_bits=1, bias=1, greatest=0x7),
)  # fmt: skip
SMALL_INTEGERS = (
    SmallInteger(name="int4", low=-8, high=7),
    SmallInteger(name="uint4", low=0, high=15),
    SmallInteger(name="int2", low=-2, high=1),
    SmallInteger(name="uint2", low=0, high=3),
)
FORMATS: Mapping[str, Format] = {
    kept.name: kept for kept in (*SMALL_FLOATS, PowerOfTwo(), *SMALL_INTEGERS)
}

# Least and greatest number of each integer format.
INTEGER_LIMITS: Mapping[str, tuple[int, int]] = {
    kept.name: (kept.low, kept.high) for kept in SMALL_INTEGERS
}
