"""Sizes of machine code, read from objects that the system's compiler made."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tuner.runtime.object_file import machine_code_bytes
from tuner.runtime.toolchain import Toolchain


def compiled(toolchain: Toolchain, folder: Path, source: str, *flags: str) -> bytes:
    (folder / "source.c").write_text(source)
    made = folder / "source.o"
    command = [*toolchain.command, "-O1", *flags, "-c", str(folder / "source.c"), "-o", str(made)]
    subprocess.run(command, check=True, timeout=60)
    return made.read_bytes()


def test_code_counts_wherever_it_lies_and_data_does_not(
    toolchain: Toolchain, tmp_path: Path
) -> None:
    one = "int f(int x) { return x * 3 + 1; }\n"
    two = one + "int g(int x) { return x * 5 - f(x); }\n"
    small = machine_code_bytes(compiled(toolchain, tmp_path, one))
    assert 0 < small < machine_code_bytes(compiled(toolchain, tmp_path, two))
    data = one + "int table[4096] = {1}; const double pi[512] = {3.14};\n"
    assert machine_code_bytes(compiled(toolchain, tmp_path, data)) == small
    apart = machine_code_bytes(compiled(toolchain, tmp_path, two, "-ffunction-sections"))
    assert small < apart


@pytest.mark.parametrize("content", [b"", b"not an object" * 20, b"\x7fELF\x01\x01" + bytes(100)])
def test_what_is_no_such_object_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="no 64-bit little-endian ELF object"):
        machine_code_bytes(content)


def test_an_object_that_is_cut_off_is_refused(toolchain: Toolchain, tmp_path: Path) -> None:
    whole = compiled(toolchain, tmp_path, "int f(int x) { return x; }\n")
    with pytest.raises(ValueError, match="cut off"):
        machine_code_bytes(whole[: len(whole) - 100])
