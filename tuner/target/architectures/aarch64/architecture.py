"""64-bit Arm as generated code sees it: NEON of 32 registers of 16 bytes, or SVE of a length.

Source: Arm Architecture Reference Manual for A-profile (DDI 0487), A1.4 (registers) and
C7 (SDOT, UDOT, USDOT, BFDOT; of matrices SMMLA, UMMLA, USMMLA, BFMMLA; FMLAL), C8 (SVE's).
A schedule has vectors of one length. So SVE is used where a declared core has vectors longer
than NEON's, and code for one length checks it: `sve256` and `sve512` stand for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tuner.target.architectures import generic
from tuner.target.architectures.architecture import (
    Architecture,
    CpuidFeature,
    ScalableVectors,
)
from tuner.target.isa import DotProduct, IsaDescription

FEATURES: Mapping[str, str] = {
    "asimd": "neon", "asimdhp": "fullfp16", "asimdfhm": "fp16fml", "asimddp": "dotprod",
    "i8mm": "i8mm", "bf16": "bf16", "sve": "sve", "sve2": "sve2",
}  # fmt: skip

AT_HWCAP, AT_HWCAP2 = 16, 26  # types of entries of the auxiliary vector
VECTOR_LENGTH = 0  # in place of such a type
SVE = ScalableVectors(
    feature="sve",
    lengths={32: "sve256", 64: "sve512"},
    length_options=("-aarch64-sve-vector-bits-min", "-aarch64-sve-vector-bits-max"),
)
# Linux, arch/arm64/include/uapi/asm/hwcap.h.
HWCAPS: Mapping[str, CpuidFeature] = {
    "neon": CpuidFeature(AT_HWCAP, 0, 0, 1, 0),
    "fullfp16": CpuidFeature(AT_HWCAP, 0, 0, 10, 0),
    "dotprod": CpuidFeature(AT_HWCAP, 0, 0, 20, 0),
    "sve": CpuidFeature(AT_HWCAP, 0, 0, 22, 0),
    "fp16fml": CpuidFeature(AT_HWCAP, 0, 0, 23, 0),
    "sve2": CpuidFeature(AT_HWCAP2, 0, 0, 1, 0),
    "i8mm": CpuidFeature(AT_HWCAP2, 0, 0, 13, 0),
    "bf16": CpuidFeature(AT_HWCAP2, 0, 0, 14, 0),
    **{name: CpuidFeature(VECTOR_LENGTH, size, 0, 0, 0) for size, name in SVE.lengths.items()},
}

NEON_BYTES = 16
DOT_PRODUCTS = (
    DotProduct(
        name="sdot", factors=frozenset({"int8"}), accumulator="int32", group=4, lanes=4,
        signs="same", features=frozenset({"dotprod"}),
    ),
    DotProduct(
        name="udot", factors=frozenset({"uint8"}), accumulator="int32", group=4, lanes=4,
        signs="same", features=frozenset({"dotprod"}),
    ),
    DotProduct(
        name="usdot", factors=frozenset({"int8", "uint8"}), accumulator="int32", group=4, lanes=4,
        signs="mixed", features=frozenset({"i8mm"}),
    ),
    DotProduct(
        name="bfdot", factors=frozenset({"bfloat16"}), accumulator="float32", group=2, lanes=4,
        signs="any", features=frozenset({"bf16"}),
    ),
    DotProduct(
        name="fmlal", factors=frozenset({"float16"}), accumulator="float32", group=1, lanes=4,
        signs="any", features=frozenset({"fp16fml"}),
    ),
    DotProduct(
        name="smmla", factors=frozenset({"int8"}), accumulator="int32", group=8, lanes=4, rows=2,
        signs="same", features=frozenset({"i8mm"}),
    ),
    DotProduct(
        name="ummla", factors=frozenset({"uint8"}), accumulator="int32", group=8, lanes=4, rows=2,
        signs="same", features=frozenset({"i8mm"}),
    ),
    DotProduct(
        name="usmmla", factors=frozenset({"int8", "uint8"}), accumulator="int32", group=8, lanes=4,
        rows=2, signs="mixed", features=frozenset({"i8mm"}),
    ),
    DotProduct(
        name="bfmmla", factors=frozenset({"bfloat16"}), accumulator="float32", group=4, lanes=4,
        rows=2, signs="any", features=frozenset({"bf16"}),
    ),
)  # fmt: skip


def _dot_products(features: frozenset[str], vector_bytes: int) -> tuple[DotProduct, ...]:
    """NEON's, or of longer vectors SVE's, which has sdot and udot on every core. Its products
    of matrices are two by two in each 16 bytes, and its products of float16 are of every
    second element: no sketch has either."""
    if vector_bytes == NEON_BYTES:
        return tuple(dot for dot in DOT_PRODUCTS if dot.features & features)
    return tuple(
        replace(dot, lanes=dot.lanes * vector_bytes // NEON_BYTES)
        for dot in DOT_PRODUCTS
        if dot.rows == 1
        and dot.group > 1
        and (dot.features & features or "dotprod" in dot.features)
    )


def describe(features: tuple[str, ...], mcpu: str) -> IsaDescription:
    """What 64-bit Arm offers.

    The architecture does not state ports, buffers, line and page; they are those of
    `generic`.
    """
    given = frozenset(features)
    vector_bytes = next((size for size, name in SVE.lengths.items() if name in given), NEON_BYTES)
    return replace(
        generic.describe(features, mcpu),
        vector_bytes=vector_bytes,
        vector_registers=32,
        dot_products=_dot_products(given, vector_bytes),
        native_float16="fullfp16" in features,
    )


AARCH64 = Architecture(
    features=FEATURES,
    llvm_cpu=generic.archspec_name,
    describe=describe,
    cpuid=HWCAPS,
    triple="aarch64-linux-gnu",
    scalable=SVE,
)
