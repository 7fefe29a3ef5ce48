"""How ELF names the architectures that libraries are made for: e_machine of a file's header.

Numbers: System V ABI, machine-specific supplements (EM_X86_64, EM_AARCH64, EM_RISCV).
"""

from __future__ import annotations

from collections.abc import Mapping

MACHINES: Mapping[int, str] = {62: "x86_64", 183: "aarch64", 243: "riscv64"}
_MAGIC, _MACHINE = b"\x7fELF", slice(18, 20)


def architecture_in(library: bytes) -> str | None:
    """The architecture that a 64-bit little-endian ELF file is for; None for any other."""
    if library[:4] != _MAGIC or library[4:6] != b"\x02\x01":
        return None
    return MACHINES.get(int.from_bytes(library[_MACHINE], "little"))
