"""Calls a second of a kernel on all cores: as many instances at once as there is room for.

Instances share caches, memory and frequency, so that a call takes longer than alone. All
kernels of a workload run in turn: what slows the machine for a while falls on each of them.

A rate is calls over the time they took, slow ones included. Medians would hide that a call of
several threads waits whenever one of its cores is held up.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from statistics import mean
from threading import Barrier

from tuner.app.kernels.promoted import Promoted
from tuner.app.races.race import RaceError
from tuner.errors import UsageError
from tuner.measure.assignment import Assignment, Request
from tuner.measure.outcome import Outcome, Timed
from tuner.measure.runner import RunnerProcess
from tuner.measure.timing import PROMOTION
from tuner.settings import Settings
from tuner.workers.fleet.lanes import lane
from tuner.workload.workload import Workload

# Long beside what instances start apart, so that nearly all calls are beside the others'.
PLAN = replace(PROMOTION, budget_s=0.6, max_samples=3000)
ROUNDS = 3  # of all kernels, of which the median counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """What instances of a kernel did together."""

    instances: int
    threads: int  # of each
    calls_per_s: float  # of all together


def throughputs(
    workload: Workload, kernels: Sequence[Promoted], cores: Sequence[int], settings: Settings
) -> list[Throughput]:
    """What instances of each kernel do, in rounds of all; in the order of `kernels`.

    Raises as `throughput` does.
    """
    rounds = [
        [throughput(workload, kernel, cores, settings) for kernel in kernels] for _ in range(ROUNDS)
    ]
    return [
        sorted(of_one, key=lambda each: each.calls_per_s)[ROUNDS // 2]
        for of_one in zip(*rounds, strict=True)
    ]


def throughput(
    workload: Workload, kernel: Promoted, cores: Sequence[int], settings: Settings
) -> Throughput:
    """Runs as many instances of a kernel as `cores` have room for.

    Each has cores of its own. Raises UsageError for more threads than cores, RaceError
    where an instance fails.
    """
    threads = kernel.stored.threads
    count = len(cores) // threads
    if count < 1:
        raise UsageError(
            f"a kernel of {threads} threads needs as many cores, and there are {len(cores)}"
        )
    with ExitStack() as stack:
        runners = [stack.enter_context(RunnerProcess()) for _ in range(count)]
        for number, runner in enumerate(runners):
            own = lane(cores[number * threads : (number + 1) * threads])
            runner.prepare(
                Assignment(workload=workload, lane=own, threads=threads, seed=settings.seed)
            )
        together = Barrier(count)

        def measured(runner: RunnerProcess) -> Outcome:
            request = Request(
                name="instance",
                library=str(kernel.path),
                symbol=kernel.symbol,
                timeout_s=settings.run_timeout_s,
                plan=PLAN,
            )
            together.wait()
            return runner.measure(request)

        outcomes = list(stack.enter_context(ThreadPoolExecutor(count)).map(measured, runners))
    instances: list[tuple[float, ...]] = []
    for outcome in outcomes:
        if not isinstance(outcome, Timed):
            raise RaceError(
                f"one of {count} instances of {workload.spec} failed: {outcome.kind}: "
                f"{outcome.message}"
            )
        instances.append(outcome.samples_s)
    return Throughput(instances=count, threads=threads, calls_per_s=together_per_s(instances))


def together_per_s(instances: Sequence[Sequence[float]]) -> float:
    """Calls a second of all instances, from the seconds of each one's calls."""
    return sum(1.0 / mean(samples_s) for samples_s in instances)
