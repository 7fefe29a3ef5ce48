"""Whether a device is of the kind that a declared CPU names."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.measure.device.protocol import DeviceFacts
from tuner.target.architectures.aarch64.architecture import AT_HWCAP, VECTOR_LENGTH
from tuner.target.architectures.riscv64.architecture import VECTORS
from tuner.target.architectures.table import architecture_of
from tuner.target.target import Target

# Implementer and part of MIDR_EL1 by LLVM's name of a core: Linux,
# arch/arm64/include/asm/cputype.h. Apple's are those of the fast cores.
PARTS: Mapping[str, frozenset[tuple[int, int]]] = {
    name: frozenset((implementer, part) for part in parts)
    for name, implementer, parts in (
        ("cortex-a53", 0x41, (0xD03,)), ("cortex-a55", 0x41, (0xD05,)),
        ("cortex-a57", 0x41, (0xD07,)), ("cortex-a72", 0x41, (0xD08,)),
        ("cortex-a73", 0x41, (0xD09,)), ("cortex-a75", 0x41, (0xD0A,)),
        ("cortex-a76", 0x41, (0xD0B,)), ("cortex-a77", 0x41, (0xD0D,)),
        ("cortex-a78", 0x41, (0xD41,)), ("cortex-a510", 0x41, (0xD46,)),
        ("cortex-a710", 0x41, (0xD47,)), ("cortex-a715", 0x41, (0xD4D,)),
        ("cortex-x1", 0x41, (0xD44,)), ("cortex-x2", 0x41, (0xD48,)),
        ("cortex-x3", 0x41, (0xD4E,)), ("neoverse-n1", 0x41, (0xD0C,)),
        ("neoverse-n2", 0x41, (0xD49,)), ("neoverse-v1", 0x41, (0xD40,)),
        ("neoverse-v2", 0x41, (0xD4F,)),
        ("apple-a14", 0x61, (0x023, 0x025, 0x029)), ("a64fx", 0x46, (0x001,)),
    )
}  # fmt: skip


def unsuitable(facts: DeviceFacts, target: Target) -> str | None:
    """Why the device cannot measure for a declared CPU; None where it can."""
    declared = target.fingerprint
    if facts.architecture != declared["architecture"]:
        return f"it is {facts.architecture}, and {target.name} is {declared['architecture']}"
    missing = [name for name in target.isa if not _has(facts, target, name)]
    if missing:
        return f"it lacks {', '.join(missing)}, which {target.name} has"
    mcpu = str(declared["mcpu"])
    if declared.get("every_core"):
        return None
    if mcpu not in PARTS:
        return (
            f"nothing tells whether it is a {mcpu}; some Arm cores are told apart, and an entry "
            f"of your own with every_core = true is taken as it is named"
        )
    part = (facts.identity >> 24 & 0xFF, facts.identity >> 4 & 0xFFF)
    if part in PARTS[mcpu]:
        return None
    if not facts.identity:
        return f"its system does not tell its core (MIDR_EL1), and {target.name} is one kind"
    known = next((f" but a {name}" for name, parts in PARTS.items() if part in parts), "")
    return f"its core is {part[0]:#x}:{part[1]:#x}, which is no {mcpu}{known}"


def _has(facts: DeviceFacts, target: Target, feature: str) -> bool:
    """Whether a feature is there, as far as Linux tells programs of it.

    Of RISC-V's the agent tries vectors; of x86 a library looks itself, or nobody does.
    """
    architecture = architecture_of(target)
    if facts.architecture == "riscv64" and feature == VECTORS:
        return facts.vector_bytes >= target.vector_bytes
    if facts.architecture != "aarch64" or feature not in (architecture.cpuid or {}):
        return True
    place = (architecture.cpuid or {})[feature]
    if place.leaf == VECTOR_LENGTH:
        return facts.vector_bytes == place.subleaf
    word = facts.hwcaps[0 if place.leaf == AT_HWCAP else 1]
    return bool(word >> place.bit & 1)
