"""32-bit WebAssembly as generated code sees it: vectors of 16 bytes, and no operating system.

Source: WebAssembly Core Specification 2.0, vector instructions. They have no multiply-add,
no stores past the caches and no prefetch, and float16 is not among their numbers. Registers
are the engine's: 16 where it runs on x86-64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tuner.target.architectures import generic
from tuner.target.architectures.architecture import Architecture
from tuner.target.isa import IsaDescription

FEATURES: Mapping[str, str] = {
    name: name for name in ("bulk-memory", "nontrapping-fptoint", "sign-ext", "simd128")
}


def describe(features: tuple[str, ...], mcpu: str) -> IsaDescription:
    """Ports, buffers, line and page are those of `generic`."""
    return replace(
        generic.describe(features, mcpu),
        non_temporal_stores=False,
        prefetch=False,
        converts_float16=False,
        fma_units=1,
        wide_fma_units=1,
    )


# TVM takes 128 bits without being told too, with a warning at each kernel.
WASM32 = Architecture(
    features=FEATURES,
    llvm_cpu=generic.archspec_name,
    describe=describe,
    triple="wasm32",
    cross={"vector-width": 128},
    freestanding=True,
)
