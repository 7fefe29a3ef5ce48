"""Whether a device is of the kind that a declared CPU names."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.measure.device.protocol import DeviceFacts
from tuner.target.architectures.aarch64.architecture import AT_HWCAP, VECTOR_LENGTH
from tuner.target.architectures.riscv64.architecture import VECTORS
from tuner.target.architectures.table import architecture_of
from tuner.target.architectures.x86_64.cpuid import EBX, ECX
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
# Where the first word of a device of x86-64 has registers of CPUID's leaves 1 and 7.
X86_WORDS = {(1, ECX): 0, (7, EBX): 32}


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
    other = next((f" but a {name}" for name, parts in PARTS.items() if part in parts), "")
    return f"its core is {part[0]:#x}:{part[1]:#x}, which is no {mcpu}{other}"


def _has(facts: DeviceFacts, target: Target, feature: str) -> bool:
    """Whether a feature is there, as far as a device tells; what it does not tell it has."""
    place = (architecture_of(target).cpuid or {}).get(feature)
    match facts.architecture:
        case "riscv64" if feature == VECTORS:
            return facts.vector_bytes >= target.vector_bytes
        case "x86_64" if place is not None and (place.leaf, place.reg) in X86_WORDS:
            saved = facts.hwcaps[1] & place.xcr0 == place.xcr0
            shift = X86_WORDS[place.leaf, place.reg] + place.bit
            return saved and bool(facts.hwcaps[0] >> shift & 1)
        case "aarch64" if place is not None and place.leaf == VECTOR_LENGTH:
            return facts.vector_bytes == place.subleaf
        case "aarch64" if place is not None:
            return bool(facts.hwcaps[0 if place.leaf == AT_HWCAP else 1] >> place.bit & 1)
    return True
