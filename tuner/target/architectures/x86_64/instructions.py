"""Dot products and matrix instructions of x86-64.

Source: Intel Software Developer's Manual, volume 2 (VPMADDWD, VPDPBUSD, VDPBF16PS) and
volume 1, chapter 18 (Advanced Matrix Extensions). AMX does 512 multiply-adds of bfloat16
a cycle, 1024 of 8-bit integers (Intel's Optimization Reference Manual, chapter 20),
where two vectors of float32 are 32.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.target.isa import DotProduct, MatrixUnit

INTEGERS = frozenset({"int8", "uint8"})
BFLOAT16 = frozenset({"bfloat16"})

# vpmaddwd takes integers of 16 bits, to which both factors are widened: exact, as a pair
# is at most 2 * 255 * 255. vpdpbusd takes one factor without and one with a sign.
# AVX512-VNNI gives it on vectors of 32 bytes with AVX512VL, which every such CPU has.
DOT_PRODUCTS = (
    DotProduct(
        name="vpdpbusd", factors=INTEGERS, accumulator="int32", group=4, lanes=16, signs="mixed",
        features=frozenset({"avx512vnni"}),
    ),
    DotProduct(
        name="vpdpbusd", factors=INTEGERS, accumulator="int32", group=4, lanes=8, signs="mixed",
        features=frozenset({"avxvnni", "avx512vnni"}),
    ),
    DotProduct(
        name="vpmaddwd", factors=INTEGERS, accumulator="int32", group=2, lanes=16, signs="any",
        features=frozenset({"avx512bw"}),
    ),
    DotProduct(
        name="vpmaddwd", factors=INTEGERS, accumulator="int32", group=2, lanes=8, signs="any",
        features=frozenset({"avx2"}),
    ),
    DotProduct(
        name="vdpbf16ps", factors=BFLOAT16, accumulator="float32", group=2, lanes=16, signs="any",
        features=frozenset({"avx512bf16"}),
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TileRegisters:
    """The registers that all AMX instructions share."""

    registers: int
    rows: int
    word_bytes: int  # of a row's sixteen


AMX = TileRegisters(registers=8, rows=16, word_bytes=4)
MATRIX_UNITS = tuple(
    MatrixUnit(
        factors=factors,
        feature=feature,
        registers=AMX.registers,
        rows=AMX.rows,
        word_bytes=AMX.word_bytes,
        rate=rate,
    )
    for factors, feature, rate in (
        (BFLOAT16, "amx-bf16", 16.0),
        (INTEGERS, "amx-int8", 32.0),
    )
)
