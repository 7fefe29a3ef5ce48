"""Searches workloads by the product's searcher, compiler and runner, without a history.

Candidates are built on one core and screened on another, beside whatever else runs: all
that a search decides is what takes part in a race later.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.oracle.log import Searched
from tuner.measure.assignment import Assignment, Lane, Request
from tuner.measure.outcome import Failed, Outcome, Timed, Trial
from tuner.measure.runner import RunnerProcess
from tuner.search.searcher import Searcher
from tuner.search.strategies import DEFAULT_STRATEGY
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Config
from tuner.spaces.core.target_space import TargetSpace
from tuner.target.target import Target
from tuner.workers.fleet.builder import Compiler
from tuner.workers.fleet.messages import BuildRequest, Library, Limits, Problem
from tuner.workers.jobs.search import searcher_for
from tuner.workload.workload import Workload

FINALISTS = 2  # beside the first candidate
IN_FLIGHT = 2  # built while another is timed
ABANDON = 4.0  # times of the best from which a candidate is not worth its time


def searched(
    workloads: Sequence[Workload],
    target: Target,
    folder: Path,
    *,
    trials: int,
    cores: Sequence[int],
    until_s: float,
) -> Iterator[Searched]:
    """A search of each workload, until `until_s` of the monotonic clock."""
    with ExitStack() as stack:
        compiler = Compiler(storage=folder, cores=(cores[0],), limits=Limits())
        stack.callback(compiler.close)
        runner = stack.enter_context(RunnerProcess())
        builds = stack.enter_context(ThreadPoolExecutor(1))
        plans = stack.enter_context(ThreadPoolExecutor(1))
        lane = Lane(name=f"cpu:{cores[-1]}", cores=(cores[-1],))
        problems = [Problem(workload=each, target=target, threads=1) for each in workloads]
        # The first points of the next search are looked for while this one builds.
        planned = [plans.submit(_planned, problem) for problem in problems[:1]]
        for number, problem in enumerate(problems):
            if time.monotonic() > until_s:
                return
            planned += [plans.submit(_planned, each) for each in problems[number + 1 : number + 2]]
            runner.prepare(Assignment(workload=problem.workload, lane=lane, threads=1))
            space, searcher = planned[number].result()
            yield _Search(problem, space, searcher, compiler, runner, builds).run(trials)


def _planned(problem: Problem) -> tuple[TargetSpace[Any], Searcher]:
    space = space_of(problem.workload, problem.target, problem.threads)
    return space, searcher_for(space, strategy=DEFAULT_STRATEGY, seed=0)


class _Search:
    def __init__(
        self,
        problem: Problem,
        space: TargetSpace[Any],
        searcher: Searcher,
        compiler: Compiler,
        runner: RunnerProcess,
        pool: ThreadPoolExecutor,
    ) -> None:
        self._problem, self._compiler, self._runner, self._pool = problem, compiler, runner, pool
        self._space, self._searcher = space, searcher
        self._built: dict[int, tuple[Config, Library]] = {}
        self._best_s: float | None = None

    def run(self, trials: int) -> Searched:
        waiting: list[tuple[int, Config, Future[Library | Failed]]] = []
        timed: dict[int, float | None] = {}
        asked = 0
        while asked < trials or waiting:
            while asked < trials and len(waiting) < IN_FLIGHT:
                points = self._searcher.ask(1)
                if not len(points):
                    trials = asked
                    break
                asked += 1
                config: Config = self._space.space.config(points[0])
                request = BuildRequest(number=asked, config=config)
                future = self._pool.submit(self._compiler.build, self._problem, request)
                waiting.append((asked, config, future))
            if not waiting:
                break
            number, config, future = waiting.pop(0)
            outcome = self._measured(number, config, future.result())
            self._searcher.tell([Trial(number=number, config=config, outcome=outcome)])
            timed[number] = outcome.median_s if isinstance(outcome, Timed) else None
        return Searched(
            spec=self._problem.workload.spec,
            seconds=tuple(timed.values()),
            finalists=self._finalists(timed),
        )

    def _measured(self, number: int, config: Config, built: Library | Failed) -> Outcome:
        if isinstance(built, Failed):
            return built
        self._built[number] = config, built
        outcome: Outcome = self._runner.measure(
            Request(
                name=f"candidate {number}",
                library=built.path,
                symbol=built.symbol,
                abandon_above_s=None if self._best_s is None else self._best_s * ABANDON,
            )
        )
        if isinstance(outcome, Timed):
            self._best_s = min(outcome.median_s, self._best_s or outcome.median_s)
        return outcome

    def _finalists(self, timed: dict[int, float | None]) -> tuple[dict[str, object], ...]:
        """The first candidate and the fastest ones with other code; other libraries go."""
        timings = sorted((s, number) for number, s in timed.items() if s is not None)
        order = [number for _, number in timings]
        chosen: dict[str, int] = {}
        for number in [*([1] if 1 in self._built and timed[1] is not None else []), *order]:
            chosen.setdefault(self._built[number][1].sha256, number)
        kept = list(chosen.values())[: 1 + FINALISTS]
        paths = {self._built[number][1].path for number in kept}
        for _, library in self._built.values():
            if library.path not in paths:
                Path(library.path).unlink(missing_ok=True)
        return tuple(
            {
                "number": number,
                "config": dict(config),
                "library": library.path,
                "sha256": library.sha256,
                "symbol": library.symbol,
            }
            for number in kept
            for config, library in [self._built[number]]
        )
