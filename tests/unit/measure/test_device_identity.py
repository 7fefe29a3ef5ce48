"""Whether a device is of the kind that a declared CPU names, by what its system tells."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from tuner.measure.device.identity import PARTS, unsuitable
from tuner.measure.device.protocol import DeviceFacts, FenceBit
from tuner.target.architectures.x86_64.cpuid import CPUID, EBX, ECX, LEVELS
from tuner.target.detect import parse_target
from tuner.target.microarchitectures import declared_cpus

V3 = LEVELS["x86-64-v3"]
# AT_HWCAP of Linux on Arm.
NEON, HALVES, DOTS, SCALABLE, WIDENING = 1 << 1, 1 << 10, 1 << 20, 1 << 22, 1 << 23


def facts(
    architecture: str = "aarch64",
    *,
    implementer: int = 0x41,
    part: int = 0xD0C,
    hwcap: int = NEON | HALVES | DOTS,
    vector_bytes: int = 0,
) -> DeviceFacts:
    return DeviceFacts(
        architecture=architecture,
        cores=4,
        fences=FenceBit(7),
        memory_bytes=1 << 32,
        identity=implementer << 24 | 0xF << 16 | part << 4 | 1,
        hwcaps=(hwcap, 0),
        vector_bytes=vector_bytes,
        host="board",
    )


def fugaku(vector_bytes: int) -> DeviceFacts:
    hwcap = NEON | HALVES | SCALABLE
    return facts(implementer=0x46, part=0x001, hwcap=hwcap, vector_bytes=vector_bytes)


def x86_64(features: Collection[str], *, xcr0: int = 0xE7) -> DeviceFacts:
    """A device with features of CPUID's leaves 1 (ecx) and 7 (ebx)."""
    word = 0
    for place in map(CPUID.__getitem__, features):
        word |= {(1, ECX): 1, (7, EBX): 1 << 32}.get((place.leaf, place.reg), 0) << place.bit
    return replace(facts("x86_64"), hwcaps=(word, xcr0))


@pytest.mark.parametrize(
    ("device", "target", "reason"),
    [
        (facts(), "cpu:neoverse-n1", None),
        (facts(part=0xD0B), "cpu:cortex-a76", None),
        (facts(part=0xD03, hwcap=NEON), "cpu:cortex-a53", None),
        (
            facts(implementer=0x61, part=0x023, hwcap=NEON | HALVES | DOTS | WIDENING),
            "cpu:apple-m1",
            None,
        ),
        (fugaku(64), "cpu:a64fx", None),
        (fugaku(32), "cpu:a64fx", "it lacks sve512, which cpu:a64fx has"),
        (facts("riscv64", vector_bytes=16), "cpu:rv64gcv", None),
        (facts("riscv64", vector_bytes=32), "cpu:rv64gcv", None),
        (facts("riscv64"), "cpu:rv64gcv", "it lacks v, which cpu:rv64gcv has"),
        (x86_64(V3), "cpu:x86-64-v3", None),
        (x86_64(V3), "cpu:x86-64-v4", "it lacks avx512bw, avx512cd, avx512dq, avx512f, avx512vl"),
        (x86_64({*V3} - {"avx2"}), "cpu:x86-64-v3", "it lacks avx2, which cpu:x86-64-v3 has"),
        (x86_64(V3, xcr0=3), "cpu:x86-64-v3", "it lacks avx, avx2, f16c, fma, which"),
        (facts(part=0xD0B), "cpu:neoverse-n1", "which is no neoverse-n1 but a cortex-a76"),
        (facts(part=0x123), "cpu:neoverse-n1", "its core is 0x41:0x123, which is no neoverse-n1"),
        (facts(hwcap=NEON | HALVES), "cpu:neoverse-n1", "it lacks dotprod, which cpu:neoverse-n1"),
        (facts("riscv64"), "cpu:neoverse-n1", "it is riscv64, and cpu:neoverse-n1 is aarch64"),
        (x86_64(CPUID), "cpu:znver4", "every_core = true is taken as it is named"),
    ],
)
def test_a_device_must_be_the_declared_core(
    device: DeviceFacts, target: str, reason: str | None
) -> None:
    why = unsuitable(device, parse_target(target))
    assert why == reason if reason is None else why is not None and reason in why


def test_a_system_that_hides_the_core_is_refused() -> None:
    device = DeviceFacts(
        architecture="aarch64", cores=1, fences=FenceBit(0), memory_bytes=1, identity=0,
        hwcaps=(NEON | HALVES | DOTS, 0), vector_bytes=0, host="board",
    )  # fmt: skip
    why = unsuitable(device, parse_target("cpu:neoverse-n1"))
    assert why is not None and "does not tell its core" in why


def test_every_declared_arm_core_can_be_told() -> None:
    arm = [cpu.mcpu for cpu in declared_cpus().values() if cpu.architecture == "aarch64"]
    assert set(arm) <= PARTS.keys()
