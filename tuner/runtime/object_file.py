"""Facts about relocatable objects (ELF, 64 bits, little endian), read without a toolchain."""

from __future__ import annotations

import struct

MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little endian
HEADER_BYTES = 64
# Of the ELF specification: flags of a section's header, and the flag of machine code.
EXECUTABLE = 0x4


def machine_code_bytes(content: bytes) -> int:
    """Bytes of all sections with machine code.

    Constants and relocations are not among them. Raises ValueError for what is no such
    object.
    """
    if len(content) < HEADER_BYTES or not content.startswith(MAGIC):
        raise ValueError("this is no 64-bit little-endian ELF object")
    (table,) = struct.unpack_from("<Q", content, 0x28)
    width, count = struct.unpack_from("<HH", content, 0x3A)
    total = 0
    try:
        for place in range(table, table + width * count, width or 1):
            (flags,) = struct.unpack_from("<Q", content, place + 0x08)
            (size,) = struct.unpack_from("<Q", content, place + 0x20)
            total += size if flags & EXECUTABLE else 0
    except struct.error as error:
        raise ValueError(f"the object's table of sections is cut off: {error}") from error
    return total
