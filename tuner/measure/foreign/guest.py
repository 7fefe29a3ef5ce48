"""The guest: a fenced child that calls a kernel whenever its judge asks it to.

Its memory holds the kernel, the inputs of one round and what the kernel makes of them:
no reference, no clock that counts, no seed. Whatever the kernel does to it, the judge
looks at the outputs alone.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from tuner.measure.child import Report
from tuner.measure.fault import GuardWatch
from tuner.measure.foreign.arena import Arena, Layout
from tuner.measure.outcome import FailureKind
from tuner.measure.wire import Document
from tuner.runtime.loader import Library, LibraryError
from tuner.runtime.toolchain import Toolchain
from tuner.workload.expression import Tensor

_MEMORY = "/dev/shm"
OUT_OF_BOUNDS = "the kernel accessed memory"  # begins what is reported of a guard page


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """What a guest calls, and where it meets its judge."""

    harness: str  # path of the library that `harness` made
    arena: str  # path of the memory that it shares with its judge
    number: str  # path of a file that gets its process number, out of its own reach
    layout: Layout
    library: str | None = None  # of the kernel; None: a guest that only waits, to time that
    symbol: str = ""
    foreign: bool = True  # whether the library is of a stranger, not one that we linked
    timeout_s: float = 30.0  # of the guest, from its start to its end


def invitation_to_document(invitation: Invitation) -> Document:
    """The invitation as JSON."""
    return asdict(invitation)


def invitation_from_document(document: Document) -> Invitation:
    """The inverse of `invitation_to_document`. Raises KeyError or TypeError."""
    layout = document["layout"]
    tensors = {
        name: tuple(
            Tensor(name=each["name"], shape=tuple(each["shape"]), dtype=each["dtype"])
            for each in layout[name]
        )
        for name in ("takes", "gives")
    }
    return Invitation(**{**document, "layout": Layout(slots=layout["slots"], **tensors)})


def harness(arguments: int, toolchain: Toolchain, folder: Path) -> Path:
    """The library that calls functions of so many buffers, linked into `folder`.

    Raises LinkError.
    """
    types = ", ".join(["void *"] * arguments)
    values = ", ".join(f"(buffers)[{place}]" for place in range(arguments))
    call = f"#define TUNER_CALL(function, buffers) ((int (*)({types}))(function))({values})\n"
    compiled = toolchain.compile("guest.c", call + _source(), {})
    path = folder / "libguest.so"
    content = toolchain.shared([compiled], soname="libguest.so", exported=["tuner_guest_serve"])
    path.write_bytes(content)
    return path


@cache
def _source() -> str:
    return (files("tuner.runtime") / "src" / "guest.c").read_text()


def serve(invitation: Invitation, arena: Arena, threads: int, report: Report) -> None:
    """The child's part: load the kernel, then play rounds until the judge ends them."""
    play: Any = ctypes.CDLL(invitation.harness).tuner_guest_serve
    play.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p]
    play.restype = None
    watch = _watch(arena, report)
    report.stage("loading")
    function = _function(invitation, threads)
    report.stage("calling the kernel")
    play(function, arena.pointers(), len(arena.layout.tensors), arena.address)
    report.done()
    del watch


def _function(invitation: Invitation, threads: int) -> int | None:
    """The address of the kernel's function. Raises LibraryError."""
    if invitation.library is None:
        return None
    if not invitation.foreign:
        Library(invitation.library).set_num_threads(threads)
    try:
        library = ctypes.CDLL(invitation.library, mode=os.RTLD_NOW)
        return ctypes.cast(library[invitation.symbol], ctypes.c_void_p).value
    except (OSError, AttributeError) as error:
        raise LibraryError(f"the library cannot be loaded: {error}") from error


def _watch(arena: Arena, report: Report) -> GuardWatch:
    def hit(where: str) -> None:
        wrote = where.startswith("into input")
        done = "the kernel wrote" if wrote else OUT_OF_BOUNDS
        report.failed(FailureKind.WRONG_ANSWER, f"{done} {where}")
        os._exit(0)

    return GuardWatch(arena.protect(), hit)


def shared_folder(nbytes: int) -> tempfile.TemporaryDirectory[str]:
    """A folder for an arena of so many bytes: in memory, where such a file system has room."""
    return tempfile.TemporaryDirectory(
        prefix="tuner-arena-", dir=_MEMORY if _has_room(_MEMORY, nbytes) else None
    )


def _has_room(folder: str, nbytes: int) -> bool:
    """Whether half of what is free there is enough."""
    try:
        return os.access(folder, os.W_OK) and shutil.disk_usage(folder).free // 2 >= nbytes
    except OSError:
        return False
