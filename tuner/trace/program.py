"""Runs a program with code of ours in every Python that it starts."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tuner.errors import UsageError
from tuner.runtime.toolchain import Toolchain, run

HERE = Path(__file__).parent
BOOTSTRAP = HERE / "bootstrap"
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
FLAGS = ("-O2", "-fPIC", "-shared", "-std=c11", "-D_POSIX_C_SOURCE=200809L")


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
