"""Examines foreign kernels of one workload: are they right, and how long do they take.

Every call has inputs that the source could not know, and every timed one such that its
process has not seen.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import TracebackType

from tuner.errors import UsageError
from tuner.measure.assignment import Lane, Placement
from tuner.measure.check import POISONS, Case
from tuner.measure.foreign.answers import check_answer, may_be_reread, reread
from tuner.measure.foreign.arena import Arena, Layout
from tuner.measure.foreign.cases import TimedCases, slots_within
from tuner.measure.foreign.dimensions import Dimensions, dimensions_from_document
from tuner.measure.foreign.guest import Invitation, harness, shared_folder
from tuner.measure.foreign.session import Session, session
from tuner.measure.foreign.verdict import Guilty
from tuner.measure.problem import FOREIGN_CASES, Problem
from tuner.measure.runner import RunnerError, RunnerProcess
from tuner.measure.wire import Document
from tuner.runtime.toolchain import Toolchain
from tuner.workload.workload import Workload

CACHED_BYTES = 512 << 10  # buffers of a round together: half of a usual second-level cache
PROMPT_S = 0.1  # a round without calls takes some microseconds, on a busy machine milliseconds
IDLE_ROUNDS = 50  # by which the time of a round without calls is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A library and the function in it that is called."""

    name: str
    library: str  # path of the shared library, of a stranger's CUDA C++ that of the cubin
    symbol: str
    foreign: bool = True  # whether it was made from a stranger's source
    launch: Dimensions | None = None  # of a cubin's kernel


def contestant_from_document(document: Document) -> Contestant:
    """The inverse of `dataclasses.asdict`. Raises KeyError or TypeError."""
    launch = document["launch"]
    return Contestant(
        **{**document, "launch": None if launch is None else dimensions_from_document(launch)}
    )


class Examination:
    """Of one workload, on one lane. Not thread-safe; use it as a context.

    The runner process must never have prepared a workload: its children would inherit the
    references.
    """

    def __init__(
        self,
        workload: Workload,
        process: RunnerProcess,
        placement: Placement,
        toolchain: Toolchain,
        *,
        timeout_s: float = 30.0,
    ) -> None:
        """`timeout_s`: of each guest. Raises UsageError for a workload with constants.

        Every method raises RunnerError where there is no room for its inputs and outputs.
        """
        if workload.constants:
            raise UsageError(
                "a foreign kernel gets all inputs in each call; leave const="
                f"{','.join(workload.constants)} away"
            )
        self._workload, self._process, self._placement = workload, process, placement
        self._toolchain, self._timeout_s = toolchain, timeout_s
        self._problems: list[Problem] = []
        self._idle_s: float | None = None  # of a round without calls

    def __enter__(self) -> Examination:
        expression = self._workload.expression
        self._tensors = (
            expression.inputs,
            tuple(expression.tensor(name) for name in expression.outputs),
        )
        slots = slots_within(CACHED_BYTES, self._layout(1).slot_bytes)
        self._timed = TimedCases(self._workload, slots)
        self._folder = shared_folder(self._layout(slots).nbytes)
        folder = Path(self._folder.name)
        self._harness = harness(len(sum(self._tensors, ())), self._toolchain, folder)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for problem in self._problems:
            problem.close()
        self._timed.close()
        self._folder.cleanup()

    def verify(self, contestant: Contestant) -> float:
        """The largest error over all kinds of inputs, each on two poisons. Raises Guilty."""
        problem = Problem(self._workload, secrets.randbits(62))
        self._problems.append(problem)
        cases = problem.cases((*problem.promotion_cases, *FOREIGN_CASES))
        worst, earlier = 0.0, list[Case]()
        with self._guest(contestant, slots=1) as (guest, arena):
            for case in cases:
                for poison in POISONS:
                    try:
                        worst = max(worst, _ask(guest, arena, case, poison, earlier))
                    except Guilty as guilty:
                        raise _reread(guest, arena, case, poison, guilty) from None
                earlier.append(case)
        return worst

    def time(self, contestant: Contestant) -> tuple[float, ...]:
        """Seconds of one call, a sample for each round of a fresh process. Raises Guilty.

        The outputs of each timed call are checked where the kernel is a stranger's.
        """
        if self._idle_s is None:
            self._timed.make()
            self._idle_s = self._idle()
        rounds = self._timed.rounds()
        slots = len(rounds[0])
        samples, earlier = [], list[Case]()
        with self._guest(contestant, slots=slots) as (guest, arena):
            for number, cases in enumerate(rounds):
                poison = POISONS[number % len(POISONS)]
                for slot, case in enumerate(cases):
                    arena.fill(slot, case.pristine, poison)
                elapsed_s = guest.play(slots)
                if contestant.foreign:
                    for slot, case in enumerate(cases):
                        check_answer(arena, slot, case, poison, earlier)
                earlier += cases
                if number > 0:
                    samples.append(max(elapsed_s - self._idle_s, 1e-9) / slots)
        return tuple(samples)

    def _layout(self, slots: int) -> Layout:
        return Layout(takes=self._tensors[0], gives=self._tensors[1], slots=slots)

    def _idle(self) -> float:
        """Seconds of a round without calls."""
        with self._guest(None, slots=1) as (guest, _):
            return median(guest.play(0) for _ in range(IDLE_ROUNDS))

    @contextmanager
    def _guest(
        self, contestant: Contestant | None, *, slots: int
    ) -> Iterator[tuple[Session, Arena]]:
        layout = self._layout(slots)
        path = Path(self._folder.name, "arena")
        _allocate(path, layout.nbytes)
        number = Path(self._folder.name, "number")
        number.write_text("")
        invitation = Invitation(
            harness=str(self._harness),
            arena=str(path),
            number=str(number),
            layout=layout,
            library=None if contestant is None else contestant.library,
            symbol="" if contestant is None else contestant.symbol,
            foreign=contestant is not None and contestant.foreign,
            timeout_s=self._timeout_s,
        )
        arena = Arena(str(path), layout)
        try:
            with session(self._process, self._lane(invitation), invitation, arena) as guest:
                path.unlink()  # all who need it have it: none is left behind by who is killed
                yield guest, arena
        finally:
            arena.close()

    def _lane(self, invitation: Invitation) -> Placement:
        """A stranger's kernel has a single core, which its judge needs between the rounds."""
        placement, lane = self._placement, self._placement.lane
        if not invitation.foreign:
            return placement
        return Placement(
            lane=Lane(name=lane.name, cores=lane.cores[:1]),
            threads=1,
            isolation=placement.isolation,
            memory_bytes=placement.memory_bytes,
        )


def _allocate(path: Path, nbytes: int) -> None:
    """A new file with all of its room, or writing to it would end this process.

    Raises RunnerError.
    """
    path.unlink(missing_ok=True)
    try:
        with path.open("xb") as file:
            os.posix_fallocate(file.fileno(), 0, nbytes)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise RunnerError(
            f"{path.parent} has no room for {nbytes} bytes of inputs and outputs: {error.strerror}"
        ) from error


def _ask(guest: Session, arena: Arena, case: Case, poison: int, earlier: Sequence[Case]) -> float:
    arena.fill(0, case.pristine, poison)
    guest.play(1)
    return check_answer(arena, 0, case, poison, earlier)


def _reread(guest: Session, arena: Arena, case: Case, poison: int, guilty: Guilty) -> Guilty:
    """The verdict, or that outputs depend on what was in them before."""
    if not may_be_reread(guilty) or guest.play(0) > PROMPT_S:
        return guilty  # or it goes on with the call that it said was over
    return reread(
        guilty,
        poison,
        ask=lambda other: _ask(guest, arena, case, other, ()),
        outputs=lambda: _outputs(arena),
    )


def _outputs(arena: Arena) -> list[bytes]:
    layout = arena.layout
    places = range(len(layout.takes), len(layout.tensors))
    return [arena.array(0, place).tobytes() for place in places]
