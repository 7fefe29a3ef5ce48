"""The compiler process: compiles candidates and stores their libraries by content hash.

Run as `python -m tuner.workers.fleet.build_server FD`. It is the only process of a
builder that loads TVM. If it crashes or hangs in the compiler, its owner (`builder.py`)
kills and replaces it; should the owner be gone, an alarm ends it.
"""

from __future__ import annotations

import errno
import gc
import hashlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.errors import IllegalSchedule, TunerError
from tuner.measure.outcome import Failed, FailureKind
from tuner.workers.fleet.channel import parent_channel
from tuner.workers.fleet.messages import BuildReply, BuildRequest, Library, Problem, ServerSetup
from tuner.workers.fleet.recent_builds import RecentBuilds, RememberingCompiler
from tuner.workers.fleet.shipping import place

if TYPE_CHECKING:
    from tuner.workers.backends.backend import CandidateCompiler, CompiledCandidate

# It computes all the time, and shares its core with the process that feeds the lanes.
NICENESS = 10
LEAST_FREE_BYTES = 1 << 20  # with less, a failure is taken for that of the disk


def memory_bytes() -> tuple[int, int]:
    """Address space and resident memory of this process."""
    size, resident = Path("/proc/self/statm").read_text(encoding="ascii").split()[:2]
    return int(size) * resource.getpagesize(), int(resident) * resource.getpagesize()


def build(compiler: CandidateCompiler, request: BuildRequest, storage: Path) -> Library | Failed:
    """The library of a candidate, written to `storage`, or why there is none."""
    try:
        candidate = compiler.compile(request.config)
    except IllegalSchedule as error:
        return Failed(kind=FailureKind.ILLEGAL_SCHEDULE, message=str(error))
    except MemoryError as error:
        return Failed(
            kind=FailureKind.BUILD_ERROR, message=f"the compiler ran out of memory: {error}"
        )
    except (
        TunerError,
        RuntimeError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        OSError,
    ) as error:
        if _out_of_room(error, storage):
            return _no_room(error)
        return Failed(kind=FailureKind.BUILD_ERROR, message=f"{type(error).__name__}: {error}")
    try:
        return _stored(candidate, request, storage)
    except OSError as error:
        return _no_room(error)


def _stored(candidate: CompiledCandidate, request: BuildRequest, storage: Path) -> Library:
    """The candidate's files in the storage. Raises OSError."""
    digest = hashlib.sha256(candidate.library).hexdigest()
    if request.keep:
        storage = storage / request.keep
        storage.mkdir(exist_ok=True)
        place(storage, f"{digest}.o", candidate.code)
        place(storage, f"{digest}.json", json.dumps(candidate.schedule(), sort_keys=True).encode())
    path = place(storage, f"{digest}.so", candidate.library)
    return Library(
        sha256=digest,
        path=str(path),
        symbol=candidate.symbol,
        resources=candidate.resources,
        code_bytes=candidate.code_bytes,
    )


def _out_of_room(error: Exception, storage: Path) -> bool:
    """Whether the disk was full while a candidate was built.

    Compilers and linkers say so in their own words, or die.
    """
    said = any(os.strerror(number) in str(error) for number in (errno.ENOSPC, errno.EDQUOT))
    folders = (storage, Path(tempfile.gettempdir()))
    return said or any(shutil.disk_usage(folder).free < LEAST_FREE_BYTES for folder in folders)


def _no_room(error: Exception) -> Failed:
    """The failure of the disk, which is tried again and is no fault of the candidate's."""
    message = (
        f"no candidate can be built here: {error}; free some room, or set TMPDIR to a folder on "
        f"another disk"
    )
    return Failed(kind=FailureKind.INFRASTRUCTURE, message=message)


class _NotImported(MetaPathFinder):
    """Makes packages look as if they were not installed.

    `None` in `sys.modules` would do, too, but SciPy looks there for PyTorch itself, and
    takes whatever it finds for a module.
    """

    def __init__(self, *packages: str) -> None:
        self._packages = packages

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname in self._packages:
            raise ModuleNotFoundError(f"{fullname} is not used here", name=fullname)


def load_compilers() -> Callable[[Problem, Path], CandidateCompiler]:
    """Loads TVM, without the packages that it and XGBoost import only if they are there.

    They take seconds and are not needed here.
    """
    sys.meta_path.insert(0, _NotImported("torch", "sklearn", "pandas"))
    gc.disable()  # what is loaded stays
    # These are what the process is for; their backends import them late.
    from tuner.workers.backends import cpu_compiler, cuda_compiler  # noqa: F401, PLC0415
    from tuner.workers.backends.table import backend_of  # noqa: PLC0415

    gc.freeze()
    gc.enable()
    return lambda problem, storage: backend_of(problem.target).compiler(problem, storage)


def _yield_to_messages() -> None:
    os.nice(NICENESS)
    # Where the kernel shares the processor evenly among sessions (sched(7), autogroup),
    # each session has a niceness, too. This process was started in one of its own.
    if os.getsid(0) == os.getpid():
        with suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(NICENESS), encoding="ascii")


def serve(descriptor: str) -> None:
    """Answers requests on the channel of this file descriptor until its other end closes."""
    channel = parent_channel(descriptor)
    setup: ServerSetup = channel.recv()
    compiler_of = load_compilers()
    os.sched_setaffinity(0, setup.cores)
    _yield_to_messages()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    bound = setup.memory_bytes + memory_bytes()[0]
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    storage = Path(setup.storage)
    compilers: dict[str, CandidateCompiler] = {}
    recent = RecentBuilds()
    channel.send(os.getpid())
    while True:
        try:
            message: Problem | tuple[str, BuildRequest] = channel.recv()
        except EOFError:
            return
        if isinstance(message, Problem):
            compilers[message.key] = RememberingCompiler(compiler_of(message, storage), recent)
            continue
        key, request = message
        # The alarm's default action ends the process.
        signal.setitimer(signal.ITIMER_REAL, setup.build_timeout_s * request.patience + 5.0)
        result = build(compilers[key], request, storage)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        channel.send(BuildReply(result=result, resident_bytes=memory_bytes()[1]))


if __name__ == "__main__":
    serve(sys.argv[1])
