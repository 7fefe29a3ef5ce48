"""Measurement of a template's configs, compiled in the caller's own process.

Each is run and checked by an isolated runner, as in the fleet. The fleet's builders do
not know Python functions of users.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from tuner.errors import IllegalSchedule
from tuner.lowering.compiler import BuildError
from tuner.lowering.template import CompiledTemplate, TemplateSpace
from tuner.measure.assignment import Assignment, Lane, Request
from tuner.measure.outcome import Candidate, Failed, FailureKind, Trial
from tuner.measure.runner import RunnerProcess
from tuner.runtime.link import Function, link
from tuner.runtime.toolchain import LinkError
from tuner.target.target import Target


class TemplateMeasurer:
    """A `Measurer` of one candidate at a time. Close it, or use it as a context."""

    def __init__(
        self,
        space: TemplateSpace,
        *,
        target: Target,
        lane: Lane,
        threads: int = 1,
        timeout_s: float = 10.0,
    ) -> None:
        self._space, self._target = space, target
        self._threads, self._timeout_s = threads, timeout_s
        self._waiting: deque[Candidate] = deque()
        self._folder = tempfile.TemporaryDirectory(prefix="tuner-template-")
        self._runner = RunnerProcess()
        self._assignment = Assignment(workload=space.workload, lane=lane, threads=threads)
        self._prepared = False

    @property
    def capacity(self) -> int:
        return 1

    def submit(self, candidates: Sequence[Candidate]) -> None:
        self._waiting.extend(candidates)

    def results(self, *, timeout_s: float) -> Iterator[Trial]:
        """Trials of what has been submitted, each candidate built and measured on request.

        `timeout_s` is not heeded: a candidate takes as long as it takes.
        """
        while self._waiting:
            yield self._trial(self._waiting.popleft())

    def close(self) -> None:
        self._waiting.clear()
        self._runner.close()
        self._folder.cleanup()

    def __enter__(self) -> TemplateMeasurer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _trial(self, candidate: Candidate) -> Trial:
        started = time.monotonic()
        built = self._built(candidate)
        build_s = time.monotonic() - started
        if isinstance(built, Failed):
            return Trial(
                number=candidate.number, config=candidate.config, outcome=built, build_s=build_s
            )
        if not self._prepared:
            self._runner.prepare(self._assignment)
            self._prepared = True
        started = time.monotonic()
        request = Request(
            name=f"trial {candidate.number}",
            library=str(built),
            symbol="kernel",
            timeout_s=self._timeout_s,
        )
        outcome = self._runner.measure(request)
        measure_s = time.monotonic() - started
        return Trial(
            number=candidate.number,
            config=candidate.config,
            outcome=outcome,
            build_s=build_s,
            measure_s=measure_s,
        )

    def _built(self, candidate: Candidate) -> Path | Failed:
        """The candidate's library, or why there is none."""
        try:
            compiled = self._space.compile(candidate.config, self._target, "kernel")
            library = link("kernel", [self._function(compiled)])
        except IllegalSchedule as error:
            return Failed(kind=FailureKind.ILLEGAL_SCHEDULE, message=str(error))
        except (BuildError, LinkError) as error:
            return Failed(kind=FailureKind.BUILD_ERROR, message=str(error))
        path = Path(self._folder.name) / f"{candidate.number}.so"
        path.write_bytes(library)
        return path

    def _function(self, compiled: CompiledTemplate) -> Function:
        return Function.of(
            self._space.workload.expression,
            compiled.symbol,
            compiled.object_code,
            isa=self._target.isa,
            threads=self._threads,
        )
