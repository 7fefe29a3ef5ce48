"""64-bit RISC-V as generated code sees it: 32 registers of 16 bytes with the vector extension.

Source: RISC-V "V" Vector Extension 1.0 (32 registers; `zvl256b` and the like state the
length in bits, V alone 128). It has no vector stores past the caches, and prefetches only
with Zicbop, which LLVM does not use for them here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tuner.target.architectures import generic
from tuner.target.architectures.architecture import Architecture
from tuner.target.isa import IsaDescription

VECTORS = "v"
FEATURES: Mapping[str, str] = {
    "m": "m", "a": "a", "f": "f", "d": "d", "c": "c", "v": VECTORS, "zfh": "zfh", "zvfh": "zvfh",
}  # fmt: skip


def describe(features: tuple[str, ...], mcpu: str) -> IsaDescription:
    """Ports, buffers, line and page are those of `generic`."""
    return replace(
        generic.describe(features, mcpu),
        vector_registers=32,
        non_temporal_stores=False,
        prefetch=False,
        converts_float16="zfh" in features,
        nan_survives_conversion=False,
    )


# LLVM does not follow the calling convention from features.
RISCV64 = Architecture(
    features=FEATURES,
    llvm_cpu=generic.archspec_name,
    describe=describe,
    triple="riscv64-linux-gnu",
    cross={"mabi": "lp64d"},
)
