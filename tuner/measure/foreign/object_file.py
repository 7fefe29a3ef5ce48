"""What an object file may consist of, before a linker sees it.

It is what a compiler made of a stranger's text: sections of code and data, one function
that others see, and calls of nothing but mathematics and memory. Read by the ELF-64
format of the System V ABI; nothing of the file is trusted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tuner.measure.foreign.allowed import CALLABLE, SECTIONS
from tuner.measure.foreign.verdict import Guilty, VerdictName

MOST_ALIGNMENT = 4096  # bytes: a linker pads the file for more
MOST_BYTES = 64 << 20  # of all sections in memory

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATABLE = 1
_SYMTAB, _DYNSYM = 2, 11
# PROGBITS, SYMTAB, STRTAB, RELA, NOTE, NOBITS, REL, GROUP, and x86-64's unwind tables.
_TYPES = frozenset({0, 1, 2, 3, 4, 7, 8, 9, 17, 0x70000001})
_ALLOCATED = 2  # SHF_ALLOC
_LOCAL, _TLS, _INDIRECT = 0, 6, 10  # STB_LOCAL, STT_TLS, STT_GNU_IFUNC


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    alignment: int


def check_object(content: bytes, symbol: str) -> None:
    """Raises Guilty where the object holds more than a kernel named `symbol` needs."""
    try:
        sections = list(_sections(content))
        _check_sections(sections)
        for section in sections:
            if section.kind == _SYMTAB:
                _check_symbols(content, section, sections[section.link], symbol)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise Guilty(VerdictName.SECTION_REFUSED, f"the object file is damaged: {error}") from error


def _sections(content: bytes) -> Iterator[_Section]:
    identity, kind, *_, start, _flags, _size, _, _, entry, count, names = _HEADER.unpack_from(
        content
    )
    if identity[:6] != b"\x7fELF\x02\x01" or kind != _RELOCATABLE or entry != _SECTION.size:
        raise Guilty(VerdictName.SECTION_REFUSED, "the compiler made no 64-bit object file")
    rows = [_SECTION.unpack_from(content, start + index * entry) for index in range(count)]
    table = rows[names]
    for name, kind, flags, _, offset, size, link, _, alignment, _ in rows:
        yield _Section(
            name=_text(content, table[4], table[5], name),
            kind=kind,
            flags=flags,
            offset=offset,
            size=size,
            link=link,
            alignment=alignment,
        )


def _text(content: bytes, offset: int, size: int, place: int) -> str:
    table = content[offset : offset + size]
    return table[place : table.index(b"\0", place)].decode() if place < size else ""


def _check_sections(sections: list[_Section]) -> None:
    for section in sections:
        plain = not section.name or section.name.startswith(SECTIONS)
        if section.kind not in _TYPES or not plain:
            raise Guilty(
                VerdictName.SECTION_REFUSED,
                f"the object has a section {section.name or section.kind!r}; a kernel has code and "
                f"data alone, nothing that runs before or after its calls",
            )
        if section.alignment > MOST_ALIGNMENT:
            raise Guilty(
                VerdictName.SECTION_REFUSED,
                f"section {section.name} is aligned to {section.alignment} bytes; at most "
                f"{MOST_ALIGNMENT} are allowed",
            )
    total = sum(section.size for section in sections if section.flags & _ALLOCATED)
    if total > MOST_BYTES:
        raise Guilty(
            VerdictName.SECTION_REFUSED,
            f"code and static data take {total} bytes; at most {MOST_BYTES} are allowed",
        )


def _check_symbols(content: bytes, table: _Section, names: _Section, symbol: str) -> None:
    exported = set()
    for place in range(table.offset, table.offset + table.size, _SYMBOL.size):
        name_at, info, _, index, _, _ = _SYMBOL.unpack_from(content, place)
        name = _text(content, names.offset, names.size, name_at)
        if info & 15 in (_TLS, _INDIRECT):
            what = "thread-local" if info & 15 == _TLS else "resolved by a function of its own"
            raise Guilty(VerdictName.SYMBOL_REFUSED, f"{name} is {what}, which no kernel needs")
        if info >> 4 == _LOCAL:
            continue
        if index != 0:
            exported.add(name)
        elif name not in CALLABLE:
            raise Guilty(
                VerdictName.SYMBOL_REFUSED,
                f"the kernel uses {name}; of the C library it may call mathematics (expf, sqrt, …) "
                f"and memory (memcpy, malloc, …) alone",
            )
    if symbol not in exported:
        raise Guilty(
            VerdictName.BUILD_ERROR,
            f"the source defines no function {symbol}; see the signature that it must have",
        )
