"""Runs a program with the recorder in every Python that it starts."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tuner.errors import UsageError
from tuner.runtime.toolchain import Toolchain, run
from tuner.trace.record import Trace, merged

_HERE = Path(__file__).parent
BOOTSTRAP, SOURCE = _HERE / "bootstrap", _HERE / "recorder" / "numpy_calls.c"
LIBRARY = "numpy_calls.so"
FLAGS = ("-O2", "-fPIC", "-shared", "-std=c11", "-D_POSIX_C_SOURCE=200809L")
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def recorded(command: Sequence[str], share: float) -> Trace:
    """Runs a command to its end and returns what it called.

    The recorder may take `share` of the time (0.02 for 2%). The program has this process's
    standard streams. Its exit code is that of the trace: 128 and the signal's number where a
    signal ended it, as in a shell. Raises UsageError for a program that cannot be started,
    LinkError without a C compiler.
    """
    with tempfile.TemporaryDirectory(prefix="tuner-trace-") as name:
        folder = Path(name)
        compiled(folder)
        begun_s = time.monotonic()
        code = _run(command, _environment(folder, share))
        elapsed_s = time.monotonic() - begun_s
        processes, calls = merged(folder)
    return Trace(
        command=tuple(command),
        exit_code=code,
        elapsed_s=elapsed_s,
        processes=processes,
        calls=calls,
    )


def compiled(folder: Path) -> None:
    """Compiles what counts NumPy's calls into a folder. Raises LinkError."""
    run([*Toolchain.find().command, *FLAGS, "-o", str(folder / LIBRARY), str(SOURCE)])


def _environment(folder: Path, share: float) -> Mapping[str, str]:
    path = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(BOOTSTRAP), *([path] if path else [])]),
        "TUNER_TRACE_FOLDER": str(folder),
        "TUNER_TRACE_SHARE": str(share),
    }


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    try:
        child = subprocess.Popen(command, env=environment)
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
