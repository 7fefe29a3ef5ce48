"""A process of its own for what is not trusted: one question on its input, one answer
on its output, little it can do besides.

It has bounds of memory and time, may write no file, and reads none but programs and
what it is told of. A refusal is one JSON object after the word `refused`.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.errors import TunerError
from tuner.measure.sandbox.reading_fence import fence
from tuner.models.errors import ModelRefused

MEMORY_BYTES = 24 << 30  # of address space; TVM maps some gigabytes before it begins
CPU_S = 600
TIMEOUT_S = 600.0
LARGEST_ANSWER = 4 << 30  # bytes
_REFUSED = b"refused"
_TAIL = 400  # characters of what a process said before it died

Asked = Mapping[str, Any]
Answer = Callable[[Asked, bytes], bytes]


def answer_of(module: str, asked: Asked, given: bytes) -> bytes:
    """What the module, run as a program, answers to a JSON object and the bytes on its
    input. Raises ModelRefused."""
    own = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(
        entry for entry in (own, *os.environ.get("PYTHONPATH", "").split(os.pathsep)) if entry
    )
    environment = {**os.environ, "PYTHONPATH": path}
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TVM_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="tuner-model-") as folder:
        try:
            done = subprocess.run(
                [sys.executable, "-m", module, json.dumps(dict(asked))],
                input=given,
                capture_output=True,
                check=False,
                cwd=folder,
                env=environment,
                timeout=TIMEOUT_S,
            )
        except subprocess.TimeoutExpired as error:
            raise ModelRefused(
                f"the model took more than {TIMEOUT_S:.0f} s; use a smaller one"
            ) from error
    if done.returncode != 0 or len(done.stdout) > LARGEST_ANSWER:
        said = " ".join(done.stderr.decode("utf-8", "replace").split())[-_TAIL:]
        raise ModelRefused(f"the model ended its process with status {done.returncode}: {said}")
    if done.stdout.startswith(_REFUSED):
        raise ModelRefused(str(json.loads(done.stdout[len(_REFUSED) :])["message"]))
    return done.stdout


def serve(answer: Answer, readable: Callable[[Asked], Sequence[str]] = lambda asked: ()) -> None:
    """The process's side: confined before it looks at what was given. `readable` names
    files besides programs.

    With `cores` in what is asked it stays on these.
    """
    asked = json.loads(sys.argv[1])
    if "cores" in asked:
        os.sched_setaffinity(0, asked["cores"])
    given = sys.stdin.buffer.read()
    out = os.dup(1)
    os.dup2(2, 1)  # libraries may print
    _confine(readable(asked))
    try:
        found = answer(asked, given)
    except TunerError as error:
        found = _REFUSED + json.dumps({"message": str(error)}).encode()
    except MemoryError:
        found = (
            _REFUSED
            + json.dumps(
                {"message": "the model needs more memory than it may take; use a smaller one"}
            ).encode()
        )
    with os.fdopen(out, "wb") as stream:
        stream.write(found)


def _confine(readable: Sequence[str]) -> None:
    """Where the kernel has no Landlock, files may still be read, but not written."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    fence(readable=readable)
