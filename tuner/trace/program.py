"""Runs a program with code of ours in every Python that it starts."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from tuner.errors import UsageError
from tuner.runtime.toolchain import Toolchain, run

HERE = Path(__file__).parent
BOOTSTRAP = HERE / "bootstrap"
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
FLAGS = ("-O2", "-fPIC", "-shared", "-std=c11", "-D_POSIX_C_SOURCE=200809L")
_NEW_S = 60.0  # a folder younger than that may be of a process that is about to lock it


@contextmanager
def program_folder(prefix: str) -> Iterator[Path]:
    """A folder for the files of a program, as long as this process lives.

    Those of killed processes, which nobody has locked any more, are removed first.
    """
    _remove_leftovers(Path(tempfile.gettempdir()), prefix)
    with tempfile.TemporaryDirectory(prefix=prefix) as name:
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(descriptor)


def _remove_leftovers(parent: Path, prefix: str) -> None:
    for folder in parent.glob(f"{prefix}*"):
        with suppress(OSError):  # as where another process removes it too
            about = folder.lstat()
            if about.st_uid != os.getuid() or time.time() - about.st_mtime < _NEW_S:
                continue
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)


def compile_calls(source: Path, library: Path) -> None:
    """Compiles C that stands where CPython calls NumPy. Raises LinkError."""
    run([*Toolchain.find().command, *FLAGS, "-I", str(HERE), "-o", str(library), str(source)])


def run_program(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """Runs a command to its end; `variables` say what its Pythons start.

    The program has this process's standard streams and answers its signals. Its exit code is
    128 and the signal's number where a signal ended it, as in a shell. Raises UsageError for a
    program that cannot be started.
    """
    path = os.environ.get("PYTHONPATH")
    paths = os.pathsep.join([str(BOOTSTRAP), *([path] if path else [])])
    try:
        child = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": paths, **variables})
    except OSError as error:
        raise UsageError(
            f"{command[0]} cannot be started: {error.strerror}; give a program and its arguments, "
            f"such as python FILE"
        ) from None
    with _forwarding(child):
        code = child.wait()
    return code if code >= 0 else 128 - code


@contextmanager
def _forwarding(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Signals are the program's to answer; a terminal's Ctrl-C it gets by itself."""

    def forward(number: int, _: FrameType | None) -> None:
        child.send_signal(number)

    before = {number: signal.signal(number, forward) for number in FORWARDED}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
