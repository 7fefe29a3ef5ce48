"""Builders: Ray actors that each own a compiler process.

The process is replaced when it hangs, crashed or grew too large. It is separate because
forking a child from an actor with TVM and a dozen threads is not safe, and because a
crash inside LLVM must cost one candidate, not the actor. Messages to it cost less than a
millisecond a build.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from tuner.measure.core_turns import CoreTurns
from tuner.measure.outcome import Failed, FailureKind
from tuner.workers.fleet.channel import Child, source_root, spawn
from tuner.workers.fleet.handoff import HandoffMessage, post
from tuner.workers.fleet.messages import (
    BuildReply,
    BuildRequest,
    Built,
    Library,
    Limits,
    MeasureRequest,
    Problem,
    ServerSetup,
)
from tuner.workers.fleet.shipping import packed

LAST_WORDS = 4000  # characters of a dead compiler's output that go into the failure's text
START_TIMEOUT_S = 60.0  # importing TVM takes 1.2 s on an idle core


class LostCompiler(RuntimeError):
    """The compiler process cannot be started: a fault of the machine, not of a candidate."""


def compiler_environment() -> dict[str, str]:
    """The environment of a compiler: what it needs, without tokens or database addresses."""
    names = ("PATH", "HOME", "TMPDIR", "LANG", "LD_LIBRARY_PATH", "CC", "CUDA_HOME")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    # One core each: TVM's and OpenBLAS's own thread pools would only fight over it.
    return kept | {
        "PYTHONPATH": str(source_root()),
        "TVM_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


class Compiler:
    """The owner's side of one compiler process. Not thread-safe."""

    def __init__(self, *, storage: Path, cores: tuple[int, ...], limits: Limits) -> None:
        self._storage = storage
        self._cores = cores
        self._limits = limits
        self._log = storage / f".compiler-{os.getpid()}-{'-'.join(map(str, cores))}.log"
        self._child: Child | None = None
        self._problems: set[str] = set()  # keys of the problems that this process has
        self._builds = 0
        self._ready = False

    @property
    def pid(self) -> int | None:
        """The process's id while there is one."""
        return self._child.pid if self._child else None

    def start(self) -> None:
        """Starts the process without waiting for it to have loaded the compiler."""
        self.close()
        with self._log.open("wb") as log:
            environment = compiler_environment()
            self._child = spawn(
                "tuner.workers.fleet.build_server",
                directory=self._storage,
                environment=environment,
                output=log,
                flags=("-P",),
            )
        limits = self._limits
        self._child.connection.send(
            ServerSetup(
                storage=str(self._storage),
                cores=self._cores,
                build_timeout_s=limits.build_timeout_s,
                memory_bytes=limits.memory_bytes,
            )
        )
        self._problems = set()
        self._builds = 0
        self._ready = False

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None

    def wait_ready(self) -> None:
        """Waits until the compiler is loaded.

        Raises LostCompiler, with the end of the process's output, if it cannot be.
        """
        self._awake()

    def build(self, problem: Problem, request: BuildRequest) -> Library | Failed:
        """Compiles and links one candidate, within its limit.

        A new process may need more time, to start.
        """
        limits = self._limits
        try:
            child = self._awake()
            if problem.key not in self._problems:
                child.connection.send(problem)
                self._problems.add(problem.key)
            child.connection.send((problem.key, request))
            limit_s = limits.build_timeout_s * request.patience
            if not child.connection.poll(limit_s):
                self.start()
                return Failed(
                    kind=FailureKind.BUILD_TIMEOUT,
                    message=f"not built within {limit_s:g} s",
                )
            reply: BuildReply = child.connection.recv()
        except (EOFError, ConnectionError) as error:
            return self._crashed(error)
        self._builds += 1
        if (
            self._builds >= limits.builds_per_server
            or reply.resident_bytes > limits.builder_resident_bytes
        ):
            self.start()
        return reply.result

    def _crashed(self, error: Exception) -> Failed:
        """The failure of a candidate in whose build the compiler crashed.

        A crash is the candidate's fault. SIGKILL comes from outside, from an operator or
        the kernel's out-of-memory killer.
        """
        status = self._child.process.wait() if self._child else None
        output = self._last_words() or str(error)
        self.start()
        kind = FailureKind.INFRASTRUCTURE if status == -signal.SIGKILL else FailureKind.BUILD_ERROR
        return Failed(
            kind=kind,
            message=f"the compiler ended while building ({describe_exit(status)}): {output}",
        )

    def _last_words(self) -> str:
        """The end of the compiler's output, such as an assertion of LLVM or a traceback."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-LAST_WORDS:].strip()

    def _awake(self) -> Child:
        """The process, once it has loaded the compiler."""
        for _ in range(2):  # it may have died since it was last used
            if self._child is None:
                self.start()
            child = self._child
            assert child is not None
            if self._ready and child.process.poll() is None:
                return child
            try:
                if not self._ready and child.connection.poll(START_TIMEOUT_S):
                    child.connection.recv()
                    self._ready = True
                    return child
            except (EOFError, ConnectionError):
                pass
            self.close()
        raise LostCompiler(
            f"the compiler process did not start within {START_TIMEOUT_S:g} s, twice: "
            f"{self._last_words()}"
        )


def describe_exit(status: int | None) -> str:
    if status is None:
        return "no process"
    return f"signal {-status}" if status < 0 else f"exit code {status}"


class Builder:
    """The actor of a builder. Ray runs its methods one after the other."""

    def __init__(
        self,
        *,
        name: str,
        storage: str,
        cores: tuple[int, ...],
        home_cores: tuple[int, ...],
        limits: Limits,
        ships: bool = False,
    ) -> None:
        """`cores` are those of the compiler; the actor itself runs on `home_cores`.

        `ships`: libraries are measured on other machines, so that replies contain them.
        """
        self._name = name
        self._ships = ships
        self._storage = Path(storage)
        # Hashes of libraries that were handed to a lane: equal code is not timed again.
        self._posted: set[str] = set()
        self._cores = cores
        self._turns = CoreTurns()
        self._compiler = Compiler(storage=Path(storage), cores=cores, limits=limits)
        # It loads on any free core, and is confined to its own afterwards.
        self._compiler.start()
        os.sched_setaffinity(0, home_cores)
        self._problems: dict[str, Problem] = {}

    def describe(self) -> dict[str, int | str]:
        """Name and process ids, once the compiler is loaded.

        If it cannot be loaded, the fleet does not start.
        """
        self._compiler.wait_ready()
        return {"name": self._name, "pid": os.getpid(), "compiler_pid": self._compiler.pid or 0}

    def load(self, problem: Problem) -> None:
        self._problems[problem.key] = problem

    def build(self, problem_key: str, requests: Sequence[BuildRequest]) -> list[Built]:
        problem = self._problems[problem_key]
        built = []
        for request in requests:
            with self._turns.turn(self._cores, alone=False):
                started_s = time.monotonic()
                result = self._compiler.build(problem, request)
                ended_s = time.monotonic()
            if request.lane and isinstance(result, Library):
                self._post(problem_key, request, result)
            if self._ships and isinstance(result, Library):
                result = packed(result)
            built.append(
                Built(
                    number=request.number,
                    result=result,
                    started_s=started_s,
                    ended_s=ended_s,
                )
            )
        return built

    def _post(self, problem_key: str, request: BuildRequest, library: Library) -> None:
        """Hands the library to the lane that waits for it, before the driver does.

        Code that this builder has handed over before is skipped.
        """
        if not self._ships and library.sha256 not in self._posted:
            self._posted.add(library.sha256)
            measurement = MeasureRequest(
                number=request.number, library=library, best_s=request.best_s
            )
            post(
                self._storage,
                request.lane,
                HandoffMessage(problem=problem_key, request=measurement),
            )

    def close(self) -> None:
        self._compiler.close()
