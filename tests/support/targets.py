"""Frozen targets: spaces, features and generated texts are the same on every host.

A test that executes kernels needs the instructions to be there: it takes `host_target`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from tuner.target.detect import detect_cpu, parse_target, target_key
from tuner.target.target import Target


def frozen_cpu(
    name: str,
    *,
    tvm: Mapping[str, str | int],
    isa: tuple[str, ...],
    vector_bytes: int,
    l1d_bytes: int,
    l2_bytes: int,
    l3_bytes: int,
) -> Target:
    """A CPU of 32 vector registers and eight cores, described and not detected."""
    fingerprint: dict[str, str | int] = {
        "schema": 1,
        "kind": "cpu",
        "model_name": name,
        "mcpu": tvm["mcpu"],
        "isa": ",".join(isa),
        "l1d_bytes": l1d_bytes,
        "l2_bytes": l2_bytes,
        "l3_bytes": l3_bytes,
    }
    return Target(
        key=target_key(fingerprint),
        kind="cpu",
        name=name,
        tvm=tvm,
        isa=isa,
        vector_bytes=vector_bytes,
        vector_registers=32,
        cores=8,
        l1d_bytes=l1d_bytes,
        l2_bytes=l2_bytes,
        l3_bytes=l3_bytes,
        fingerprint=fingerprint,
    )


def hopper(name: str, **facts: int) -> Target:
    """A GPU of sm_90, of which the driver says so much."""
    declared = parse_target("cuda:sm_90")
    fingerprint = {**declared.fingerprint, "name": name, **facts}
    return replace(
        declared, key=target_key(fingerprint), name=f"NVIDIA {name}", fingerprint=fingerprint
    )


AVX512 = (
    "avx",
    "avx2",
    "avx512bf16",
    "avx512bw",
    "avx512cd",
    "avx512dq",
    "avx512f",
    "avx512vl",
    "avx512vnni",
    "bmi2",
    "f16c",
    "fma",
    "sse2",
    "sse4.1",
    "sse4.2",
)
ZEN5 = frozen_cpu(
    "Zen 5",
    tvm={"kind": "llvm", "mcpu": "znver5"},
    isa=AVX512,
    vector_bytes=64,
    l1d_bytes=48 << 10,
    l2_bytes=1 << 20,
    l3_bytes=32 << 20,
)
GOLDEN_COVE = frozen_cpu(
    "Golden Cove",
    tvm={"kind": "llvm", "mcpu": "sapphirerapids"},
    isa=tuple(sorted((*AVX512, "amx-bf16", "amx-int8", "amx-tile", "avx512fp16"))),
    vector_bytes=64,
    l1d_bytes=48 << 10,
    l2_bytes=2 << 20,
    l3_bytes=32 << 20,
)
NEOVERSE = frozen_cpu(
    "Neoverse N1",
    tvm={"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"},
    isa=("dotprod", "fullfp16", "neon"),
    vector_bytes=16,
    l1d_bytes=64 << 10,
    l2_bytes=1 << 20,
    l3_bytes=32 << 20,
)
SM_80 = parse_target("cuda:sm_80")
SM_90 = parse_target("cuda:sm_90")
H100 = hopper("H100", memory_clock_khz=2_619_000, memory_bus_bits=5120)
H200 = hopper("H200", memory_clock_khz=3_201_000, memory_bus_bits=6144)


@cache
def host_target() -> Target:
    """The CPU that tests run on, for those that execute kernels."""
    return detect_cpu()
