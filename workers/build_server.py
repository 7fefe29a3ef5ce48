"""The compiler process: compiles and links one candidate after the other, leaves the library on shared storage by content hash.

Run as `python -m workers.build_server FD`. It is the only process of a builder that loads TVM, and it may crash or hang in the
compiler: whoever owns it (builder.py) kills and replaces it. An alarm ends it by itself should its owner be gone by then.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import sys
from dataclasses import asdict
from pathlib import Path

from tuner.errors import IllegalSchedule, TunerError
from tuner.lowering.compiler import Compiled, compile_program
from tuner.measure.outcome import Failed, FailureKind
from tuner.runtime.link import Function, link
from tuner.spaces.cpu import CpuSpace
from tuner.spaces.default import default_program
from tuner.spaces.program import Program
from tuner.spaces.space import Config
from workers.channel import parent_channel
from workers.messages import BuildReply, BuildRequest, Library, Problem, ServerSetup
from workers.shipping import place


def memory_bytes() -> tuple[int, int]:
    """Address space and resident memory of this process."""
    size, resident = Path("/proc/self/statm").read_text(encoding="ascii").split()[:2]
    return int(size) * resource.getpagesize(), int(resident) * resource.getpagesize()


def symbol_of(problem: Problem) -> str:
    """A C name of the kernel that does not depend on the config, so that equal code gives equal libraries."""
    stem = "".join(letter if letter.isalnum() else "_" for letter in problem.workload.op or problem.workload.expression.name)
    return f"tuned_{stem}_{problem.workload.key[:8]}"


def function(problem: Problem, compiled: Compiled) -> Function:
    """The compiled kernel as the linker wants it."""
    expression = problem.workload.expression
    return Function(
        symbol=compiled.symbol,
        inputs=expression.inputs,
        outputs=tuple(expression.tensor(name) for name in expression.outputs),
        object_code=compiled.object_code,
        isa=problem.target.isa,
        threads=problem.threads,
        tvm_symbol=f"__tvm_ffi_{compiled.symbol}",
        prepack=compiled.prepack,
    )


class Origin:
    """What all candidates of one problem come from: its space, made once."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.space = CpuSpace(problem.workload, problem.target, problem.threads)

    def program(self, config: Config | None) -> Program:
        return default_program(self.problem.workload) if config is None else self.space.program(config)


def build(origin: Origin, request: BuildRequest, storage: Path) -> Library | Failed:
    problem = origin.problem
    try:
        compiled = compile_program(origin.program(request.config), problem.target, symbol_of(problem))
        library = link("kernel", [function(problem, compiled)])
    except IllegalSchedule as error:
        return Failed(kind=FailureKind.ILLEGAL_SCHEDULE, message=str(error))
    except MemoryError as error:
        return Failed(kind=FailureKind.BUILD_ERROR, message=f"the compiler ran out of memory: {error}")
    except (TunerError, RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError, OSError) as error:
        return Failed(kind=FailureKind.BUILD_ERROR, message=f"{type(error).__name__}: {error}")
    digest = hashlib.sha256(library).hexdigest()
    if request.keep:
        place(storage, f"{digest}.o", compiled.object_code)
        schedule = {**asdict(compiled.schedule), "sources": compiled.sources}
        place(storage, f"{digest}.json", json.dumps(schedule, sort_keys=True).encode())
    path = place(storage, f"{digest}.so", library)
    return Library(sha256=digest, path=str(path), symbol=compiled.symbol)


def serve(descriptor: str) -> None:
    channel = parent_channel(descriptor)
    setup: ServerSetup = channel.recv()
    os.sched_setaffinity(0, setup.cores)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    bound = setup.memory_bytes + memory_bytes()[0]
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    storage = Path(setup.storage)
    origins: dict[str, Origin] = {}
    channel.send(os.getpid())
    while True:
        try:
            message: Problem | tuple[str, BuildRequest] = channel.recv()
        except EOFError:
            return
        if isinstance(message, Problem):
            origins[message.key] = Origin(message)
            continue
        key, request = message
        signal.setitimer(signal.ITIMER_REAL, setup.build_timeout_s + 5.0)  # its default action ends the process
        result = build(origins[key], request, storage)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        channel.send(BuildReply(result=result, resident_bytes=memory_bytes()[1]))


if __name__ == "__main__":
    serve(sys.argv[1])
