"""What one core can do, measured by a small C program.

It is compiled here and runs pinned to the core. This takes a few seconds and is done
once a machine; the caller stores the result with the target.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

from tuner.errors import TunerError
from tuner.scratch import temporary_folder
from tuner.target.document import limits_from_document
from tuner.target.target import Limits

COMPILERS = ("cc", "gcc", "clang")
COMPILE_TIMEOUT_S = 60.0
PATIENCE_S = 300.0  # beyond the time asked for; a busy machine took more than a minute
LARGEST_SET_BYTES = 256 << 20  # beyond the last-level cache of current servers' share of one core
FLAGS = ("-O3", "-ffp-contract=fast", "-ffast-math")
# The widest vectors; where a compiler lacks the first set of flags, the next is tried.
MACHINE_FLAGS: tuple[tuple[str, ...], ...] = (
    ("-march=native", "-mprefer-vector-width=512"),
    ("-march=native",),
    ("-mcpu=native",),
    (),
)


class LimitsError(TunerError):
    """The machine's limits cannot be measured."""

    code = "limits"


def measure_limits(core: int, seconds: float = 1.0, *, compiler: str | None = None) -> Limits:
    """The limits of one core, measured on it for about `seconds`.

    `compiler` defaults to $CC, then cc, gcc, clang. Raises LimitsError without a
    compiler, or when the program fails.
    """
    if core not in os.sched_getaffinity(0):
        usable = ", ".join(map(str, sorted(os.sched_getaffinity(0))))
        raise LimitsError(f"core {core} is not among those this process may use: {usable}")
    with temporary_folder("tuner-scratch-limits-") as folder:
        program = _compile(_compiler(compiler), folder)
        command = [str(program), str(seconds), str(_largest_set_bytes()), str(core)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=PATIENCE_S + seconds, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise LimitsError(f"measuring core {core} failed: {error}") from error
    return limits_from_document(json.loads(done.stdout))


def _compiler(requested: str | None) -> str:
    """The path of the requested compiler, or of the first that is installed."""
    names = (requested,) if requested else tuple(filter(None, (os.environ.get("CC"), *COMPILERS)))
    for name in names:
        path = shutil.which(name)
        if path:
            return path
    raise LimitsError(f"no C compiler found (looked for {', '.join(names)}); install one or set CC")


def _compile(compiler: str, folder: Path) -> Path:
    source, program = folder / "limits.c", folder / "limits"
    source.write_text((files("tuner.target") / "limits.c").read_text())
    log = ""
    for machine in MACHINE_FLAGS:
        command = [compiler, *FLAGS, *machine, str(source), "-o", str(program)]
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False
        )
        if process.returncode == 0:
            return program
        log = process.stderr.strip()
    raise LimitsError(f"{compiler} does not compile the measuring program: {log}")


def _largest_set_bytes() -> int:
    """The largest working set that is measured.

    At most an eighth of the machine's memory, so that a small machine does not swap.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(LARGEST_SET_BYTES, max(1 << 20, memory // 8))
