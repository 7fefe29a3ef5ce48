"""A confined process for one request on untrusted data.

The request is a JSON object on the command line and a payload in memory that both
processes share, so that half a gigabyte is there once. The answer comes on standard
output; a refusal is the word `refused` and one JSON object. The process has limits of
memory and time. It cannot write files, and it can read only programs, the files that the
request names, and descriptors that it was given. It dies with the process that asks.
"""

from __future__ import annotations

import json
import mmap
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from tuner.errors import TunerError
from tuner.measure.sandbox.fence import die_with
from tuner.measure.sandbox.reading_fence import fence
from tuner.models.errors import ModelRefused
from tuner.scratch import temporary_folder

MEMORY_BYTES = 24 << 30  # of address space; TVM maps some gigabytes before it begins
CPU_S = 600
TIMEOUT_S = 600.0
LARGEST_ANSWER = 4 << 30  # bytes
_REFUSED = b"refused"
_ASKS = "asks"  # in a request: the process that waits for the answer
_TAIL = 400  # characters that are shown of a dead process's standard error

ConfinedRequest = Mapping[str, Any]  # a JSON object
Payload = bytes | Callable[[BinaryIO], object]  # the bytes, or what writes them
Answer = Callable[[ConfinedRequest, memoryview], bytes]  # (request, payload): the answer's bytes


class ModelTooSlow(ModelRefused):
    """A confined process took more time than it had."""


def answer_of(
    module: str,
    request: ConfinedRequest,
    payload: Payload,
    timeout_s: float = TIMEOUT_S,
    *,
    files: Sequence[int] = (),
) -> bytes:
    """The answer of the module, run as a confined program.

    It has the descriptors `files`, under the same numbers. Raises ModelTooSlow where it
    takes more than `timeout_s`, ModelRefused where it refuses or dies.
    """
    own = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(
        entry for entry in (own, *os.environ.get("PYTHONPATH", "").split(os.pathsep)) if entry
    )
    environment = {**os.environ, "PYTHONPATH": path}
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TVM_NUM_THREADS": "1"}
    with (
        temporary_folder("tuner-scratch-model-") as folder,
        os.fdopen(os.memfd_create("payload"), "wb") as shared,
    ):
        if callable(payload):
            payload(shared)
        else:
            shared.write(payload)
        shared.seek(0)  # flushes, too
        try:
            done = subprocess.run(
                [sys.executable, "-m", module, json.dumps({**request, _ASKS: os.getpid()})],
                stdin=shared,
                capture_output=True,
                check=False,
                cwd=folder,
                env=environment,
                timeout=timeout_s,
                pass_fds=files,
            )
        except subprocess.TimeoutExpired as error:
            raise ModelTooSlow(
                f"the model took more than {timeout_s:.0f} s; use a smaller one"
            ) from error
    if done.returncode != 0 or len(done.stdout) > LARGEST_ANSWER:
        said = " ".join(done.stderr.decode("utf-8", "replace").split())[-_TAIL:]
        raise ModelRefused(f"the model ended its process with status {done.returncode}: {said}")
    if done.stdout.startswith(_REFUSED):
        raise ModelRefused(str(json.loads(done.stdout[len(_REFUSED) :])["message"]))
    return done.stdout


def serve(
    answer: Answer,
    readable: Callable[[ConfinedRequest], Sequence[str]] = lambda request: (),
    *,
    confined: bool = True,
) -> None:
    """The main function of the confined process: answers one request.

    The process confines itself before it looks at the payload. `readable` gives the files
    that may be read besides programs. With `cores` in the request it runs on these. One
    that uses a GPU is not `confined`: the driver's files must be open to it, and it maps
    more than there is memory.
    """
    request = json.loads(sys.argv[1])
    die_with(request[_ASKS])  # killed, it could not end a model's evaluation of minutes
    if "cores" in request:
        os.sched_setaffinity(0, request["cores"])
    payload = _mapped()
    out = os.dup(1)
    os.dup2(2, 1)  # libraries may print
    if confined:
        _confine(readable(request))
    try:
        reply = answer(request, payload)
    except TunerError as error:
        reply = _REFUSED + json.dumps({"message": str(error)}).encode()
    except MemoryError:
        message = "the model needs more memory than it may take; use a smaller one"
        reply = _REFUSED + json.dumps({"message": message}).encode()
    with os.fdopen(out, "wb") as stream:
        stream.write(reply)


def _mapped() -> memoryview:
    """Standard input, which must be a file."""
    if not os.fstat(0).st_size:
        return memoryview(b"")
    return memoryview(mmap.mmap(0, 0, access=mmap.ACCESS_READ))


def _confine(readable: Sequence[str]) -> None:
    """Limits this process. Without Landlock in the kernel it can still read all files."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    fence(readable=readable)
