"""The architectures there are, by the name the Linux kernel gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tuner.target.architectures.aarch64.architecture import AARCH64
from tuner.target.architectures.architecture import Architecture
from tuner.target.architectures.generic import GENERIC
from tuner.target.architectures.riscv64.architecture import RISCV64
from tuner.target.architectures.wasm32.architecture import WASM32
from tuner.target.architectures.x86_64.architecture import X86_64
from tuner.target.isa import IsaDescription
from tuner.target.target import Target

ARCHITECTURES: Mapping[str, Architecture] = {
    "x86_64": X86_64,
    "AMD64": X86_64,
    "aarch64": AARCH64,
    "arm64": AARCH64,
    "riscv64": RISCV64,
    "wasm32": WASM32,
}
# Targets of CPUs that were stored without their architecture are for this one.
UNSTATED = "x86_64"
# What the fingerprint of a declared CPU says of its core.
STATED_NUMBERS = ("page_bytes", "load_ports", "line_fill_buffers", "fma_units", "wide_fma_units")
STATED_ABILITIES = ("non_temporal_stores", "prefetch")


def architecture_named(name: str) -> Architecture:
    """The declared architecture; a generic one, without special instructions, for any other."""
    return ARCHITECTURES.get(name, GENERIC)


def architecture_of(target: Target) -> Architecture:
    """That of a CPU; of a GPU the generic one."""
    if target.kind != "cpu":
        return GENERIC
    return architecture_named(str(target.fingerprint.get("architecture", UNSTATED)))


def isa_of(target: Target) -> IsaDescription:
    """What code for the target may use.

    Its architecture's description, with what the target states: of a detected CPU its
    registers and the cache line, of a declared one all sizes and rates.
    """
    described = architecture_of(target).describe(target.isa, str(target.tvm.get("mcpu", "")))
    stated: dict[str, Any] = {
        name: of_kind(target.fingerprint[name])
        for of_kind, names in ((int, STATED_NUMBERS), (bool, STATED_ABILITIES))
        for name in names
        if name in target.fingerprint
    }
    return replace(
        described,
        **stated,
        vector_bytes=target.vector_bytes,
        vector_registers=target.vector_registers,
        line_bytes=int(target.fingerprint.get("line_bytes", 0)) or described.line_bytes,
    )


def detectable_features() -> frozenset[str]:
    """Features, in LLVM's spelling, of which detection tells whether a machine has them."""
    return frozenset(
        feature
        for architecture in ARCHITECTURES.values()
        for feature in architecture.features.values()
    )
