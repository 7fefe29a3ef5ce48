"""Runs a compiler on what strangers wrote: it reads and executes only what is named.

Run as `python -m tuner.measure.sandbox.compiler_fence`, with a job as JSON on standard
input. Fences itself off, runs the job's commands one after the other, and ends with the
status of the first that failed. They write to `output` of the folder they work in.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from tuner.errors import TunerError
from tuner.measure.sandbox import landlock, seccomp
from tuner.measure.sandbox.system_calls import MACHINES

OUTPUT = "output"  # file of what the commands say, in their folder
NO_FENCE = 97  # the status where this process cannot be fenced
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38  # linux/prctl.h


class FenceMissing(TunerError):
    """This machine cannot fence a compiler in."""

    code = "isolation"


@dataclass(frozen=True, slots=True, kw_only=True)
class FencedJob:
    """Commands, and all that they may use."""

    commands: tuple[tuple[str, ...], ...]
    folder: str  # that they work in, the only one that they may write to
    readable: tuple[str, ...]  # files
    executable: tuple[str, ...]  # programs, and libraries that these load
    timeout_s: float  # of all together
    memory_bytes: int  # address space of each process
    file_bytes: int  # of each file written


def run_fenced(job: FencedJob, program: str = __name__) -> int:
    """The status of the first command that failed, 0 where none did.

    `program`: the module that fences itself off and does the job, by its name. Negative: the
    signal that ended it; SIGKILL where its time was over. Raises FenceMissing where
    the kernel lacks Landlock or system-call filters.
    """
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path if entry)
    with subprocess.Popen(
        [sys.executable, "-P", "-m", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={"PYTHONPATH": path, "PATH": os.defpath},
        cwd="/",
        start_new_session=True,
        text=True,
    ) as process:
        try:
            _, text = process.communicate(json.dumps(asdict(job)), timeout=job.timeout_s)
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode == NO_FENCE:
        raise FenceMissing(f"a compiler cannot be fenced in on this machine: {text.strip()[-300:]}")
    return process.returncode if process.returncode < 128 else 128 - process.returncode


def main() -> int:
    """Fence this process and run the job of standard input."""
    document = json.loads(sys.stdin.read())
    if not fence_off(document):
        return NO_FENCE
    null = os.open(os.devnull, os.O_RDONLY)
    with Path(OUTPUT).open("wb") as output:
        for command in document["commands"]:
            status = subprocess.call(
                command, stdin=null, stdout=output, stderr=output, env=_environment()
            )
            if status != 0:
                return status if status > 0 else 128 - status
    return 0


def fence_off(document: dict[str, object]) -> bool:
    """Whether this process is fenced for a job, given as JSON. Else the reason is printed."""
    try:
        _enter(document)
    except (OSError, KeyError) as error:
        print(error, file=sys.stderr)
        return False
    return True


def _enter(document: dict[str, object]) -> None:
    machine = platform.machine()
    if machine not in MACHINES:
        raise OSError(f"no table of system calls for {machine}")
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    folder = str(document["folder"])
    os.chdir(folder)
    for which, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, document["file_bytes"]),
        (resource.RLIMIT_AS, document["memory_bytes"]),
        (resource.RLIMIT_CPU, int(float(str(document["timeout_s"]))) + 1),
    ):
        resource.setrlimit(which, (int(str(limit)), int(str(limit))))
    executable = _paths(document["executable"])
    landlock.restrict(
        landlock.abi(),
        readable=_paths(document["readable"]),
        writable=(folder, os.devnull),
        executable=executable,
    )
    seccomp.install(seccomp.compiler_filter(machine), machine)


def _paths(given: object) -> Sequence[str]:
    return [str(path) for path in given] if isinstance(given, list) else []


def _environment() -> dict[str, str]:
    return {"PATH": os.defpath, "LC_ALL": "C", "TMPDIR": ".", "SOURCE_DATE_EPOCH": "0"}


if __name__ == "__main__":
    sys.exit(main())
