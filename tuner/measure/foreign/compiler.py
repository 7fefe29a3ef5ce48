"""Compiles a stranger's C text with the product's flags, and nothing but its own files.

The compiler runs behind a fence: it reads the source, the headers of a fixed list and
what it is made of, and executes only its own passes. Its time, its memory and what it
writes are bounded. What came out is looked through before anything loads it.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tuner.errors import TunerError
from tuner.measure.foreign.allowed import HEADERS, OF_MACHINE
from tuner.measure.foreign.object_file import check_object
from tuner.measure.foreign.verdict import Guilty, VerdictName
from tuner.measure.sandbox import compiler_fence
from tuner.measure.sandbox.compiler_fence import OUTPUT, FencedJob, run_fenced
from tuner.runtime.toolchain import (
    COMPILE_FLAGS,
    LIBRARIES,
    LINK_FLAGS,
    Toolchain,
    run,
    version_script,
)

MOST_SOURCE_BYTES = 256 << 10
MOST_FILE_BYTES = 64 << 20  # of what the compiler writes
MEMORY_BYTES = 2 << 30  # of each of its processes
TIMEOUT_S = 30.0
LEAST_FREE_BYTES = 1 << 20  # with less room, a compiler that failed failed for want of it
FRAME_BYTES = 1 << 20  # of a function's local variables: a caller's stack may have 8 MiB
QUOTED_BYTES = 4000  # of what the compiler says
_SOURCE, _OBJECT, _LIBRARY = "kernel.c", "kernel.o", "kernel.so"
# Included before the source. What these give depends on which files there are, out of reach or not.
_BEFORE = "before.h"
_BEFORE_TEXT = """#pragma GCC system_header
#pragma GCC poison __has_include __has_include_next __has_embed
"""
_NATIVE = {"x86_64": "-march=native", "aarch64": "-mcpu=native"}
_UNREACHABLE = ("Permission denied", "No such file or directory")
_REFUSED_HEADER = ("No such file or directory", "file not found")


class NoRoom(TunerError):
    """The machine has no room for the files of a compilation; the source is not to blame."""

    code = "no_room"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What a compiler consists of, and the headers that it may read."""

    readable: tuple[str, ...]
    executable: tuple[str, ...]


def compile_source(source: str, symbol: str, toolchain: Toolchain) -> bytes:
    """The shared library of a source, which shows the function `symbol` alone.

    Raises Guilty where it does not compile or has more in it than a kernel, LinkError
    where the compiler is missing, FenceMissing where it cannot be fenced in, NoRoom where
    the disk is full.
    """
    check_size(source)
    parts = _parts(toolchain)
    with scratch() as folder:
        (folder / _SOURCE).write_text(source, "utf-8", errors="replace")
        (folder / _BEFORE).write_text(_BEFORE_TEXT)
        (folder / "exports.map").write_text(version_script([symbol]))
        refusal = run_bounded(folder, _commands(toolchain), parts.readable, parts.executable)
        # Where linking failed, the object says why in better words.
        if refusal is None or _is_filled(folder / _OBJECT):
            check_object(content(folder / _OBJECT), symbol)
        if refusal is not None:
            raise refusal
        return content(folder / _LIBRARY)


def check_size(source: str) -> None:
    """Raises Guilty for a source that is too long to be compiled."""
    size = len(source.encode(errors="replace"))
    if size > MOST_SOURCE_BYTES:
        raise Guilty(
            VerdictName.BUILD_ERROR,
            f"the source has {size} bytes; at most {MOST_SOURCE_BYTES} are compiled",
        )


def run_bounded(
    folder: Path,
    commands: tuple[tuple[str, ...], ...],
    readable: tuple[str, ...],
    executable: tuple[str, ...] = (),
    program: str = compiler_fence.__name__,
) -> Guilty | None:
    """Why the commands of a compiler failed, None where they did not.

    `folder` is of `scratch`, the others are as of `run_fenced`. Raises OSError where the disk
    is full.
    """
    job = FencedJob(
        commands=commands,
        folder=str(folder),
        readable=readable,
        executable=executable,
        timeout_s=TIMEOUT_S,
        memory_bytes=MEMORY_BYTES,
        file_bytes=MOST_FILE_BYTES,
    )
    status = run_fenced(job, program)
    if status == 0:
        return None
    if shutil.disk_usage(folder).free < LEAST_FREE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
    return _refusal(status, _said(folder / OUTPUT))


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for one compilation. Raises NoRoom where the disk has no room for its files."""
    try:
        with tempfile.TemporaryDirectory(prefix="tuner-foreign-") as name:
            yield Path(name).resolve()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise NoRoom(
            f"there is no room to compile the source in {tempfile.gettempdir()}: {error.strerror}; "
            f"free some, or set TMPDIR to a folder on another disk"
        ) from error


def _commands(toolchain: Toolchain) -> tuple[tuple[str, ...], ...]:
    flags = (*COMPILE_FLAGS, "-O3", *_flags(toolchain))
    return (
        (*toolchain.command, *flags, "-include", _BEFORE, "-c", _SOURCE, "-o", _OBJECT),
        (*_link_command(toolchain), "-Wl,--version-script=exports.map", "-o", _LIBRARY, _OBJECT,
         *LIBRARIES),
    )  # fmt: skip


def _flags(toolchain: Toolchain) -> tuple[str, ...]:
    """Beyond those of all C: this machine's instructions, and what a kernel must not do."""
    native = _NATIVE.get(toolchain.machine)
    return (
        *((native,) if native else ()),
        "-fvisibility=default",  # the linker hides all but one function
        "-fno-lto",
        "-fmax-errors=5",
        f"-Werror=frame-larger-than={FRAME_BYTES}",
        "-fno-asynchronous-unwind-tables",
    )


def _link_command(toolchain: Toolchain) -> tuple[str, ...]:
    return (*toolchain.command, *LINK_FLAGS, "-Wl,-soname,kernel.so")


def content(path: Path) -> bytes:
    """What the compiler wrote to a file. Raises Guilty where it wrote none."""
    if not path.is_file() or path.is_symlink():
        raise Guilty(VerdictName.BUILD_ERROR, f"the compiler made no {path.name}")
    return path.read_bytes()


def _is_filled(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _said(output: Path) -> str:
    """What the compiler says. Files out of its reach look as if they were not there."""
    try:
        with output.open("rb") as file:
            text = file.read(QUOTED_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""
    return text.replace(*_UNREACHABLE)


def _refusal(status: int, text: str) -> Guilty:
    if status == -signal.SIGKILL:
        return Guilty(
            VerdictName.BUILD_ERROR,
            f"the compiler was stopped: a source may take {TIMEOUT_S:g} s, {MEMORY_BYTES} bytes of "
            f"memory and {MOST_FILE_BYTES} bytes of code; {text}".rstrip("; "),
        )
    first = next((line for line in text.splitlines() if "fatal error" in line), "")
    if any(reason in first for reason in _REFUSED_HEADER):
        return Guilty(
            VerdictName.HEADER_REFUSED,
            f"a source may include {', '.join(HEADERS)} and the headers of vector instructions; "
            f"the compiler said: {text}",
        )
    return Guilty(
        VerdictName.BUILD_ERROR, f"the compiler refused it (status {status}): {text}".rstrip(": ")
    )


@cache
def _parts(toolchain: Toolchain) -> _Parts:
    """Asks the compiler for its parts, once a process."""
    command = toolchain.command
    programs = [_resolved(command[0])]
    for name in ("cc1", "as", "ld", "collect2", "lto-wrapper"):
        programs.append(_resolved(run([*command, f"-print-prog-name={name}"]).strip()))
    plugin = run([*command, "-print-file-name=liblto_plugin.so"]).strip()
    present = [path for path in (*programs, plugin) if path and Path(path).is_file()]
    loaded = {path for program in present for path in _loaded(program)}
    executable = dict.fromkeys((*present, *sorted(loaded)))
    readable = dict.fromkeys(
        (*_headers(toolchain), *_link_inputs(toolchain), "/etc/ld.so.cache", "/proc/cpuinfo")
    )
    return _Parts(readable=tuple(readable), executable=tuple(executable))


def _resolved(program: str) -> str:
    """A program by its path; empty where there is none."""
    return shutil.which(program) or ""


def _loaded(program: str) -> Iterator[str]:
    """The shared libraries that a program loads, its loader among them."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    for word in done.stdout.split():
        if word.startswith("/"):
            yield word


def _headers(toolchain: Toolchain) -> Sequence[str]:
    """All files that the allowed headers consist of."""
    named = (*HEADERS, *OF_MACHINE.get(toolchain.machine, ()))
    with tempfile.TemporaryDirectory(prefix="tuner-headers-") as scratch:
        path = Path(scratch, "all.c")
        path.write_text("".join(f"#include <{name}>\n" for name in named))
        flags = (*COMPILE_FLAGS, *_flags(toolchain))
        rule = run([*toolchain.command, *flags, "-M", str(path)])
        return [word for word in rule.split() if word.startswith("/") and word != str(path)]


def _link_inputs(toolchain: Toolchain) -> Sequence[str]:
    """All files that linking a library reads."""
    with tempfile.TemporaryDirectory(prefix="tuner-parts-") as scratch:
        Path(scratch, _SOURCE).write_text("int kernel_parts;\n")
        run([*toolchain.command, *COMPILE_FLAGS, "-c", _SOURCE, "-o", _OBJECT], cwd=scratch)
        command = (*_link_command(toolchain), "-Wl,--trace", "-Wl,--no-as-needed", "-o", _LIBRARY)
        text = run([*command, _OBJECT, *LIBRARIES, "-lgcc_s"], cwd=scratch)
    files = [line.strip().strip("()").partition(")")[0].strip("(") for line in text.splitlines()]
    return [path for path in files if path.startswith("/")]
