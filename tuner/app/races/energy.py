"""Energy of a call: what the processors took while one instance of a kernel ran.

The counters are those of whole packages, or of a GPU's board, so that the idle power of all
that is on them counts as long as a call takes. Two runs, a short one and a long one, tell
the power of calls alone: what starts and checks a process is in both.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from tuner.app.kernels.promoted import Promoted
from tuner.app.machine import energy_counters
from tuner.app.platforms.table import platform_of
from tuner.app.races.race import RaceError
from tuner.measure.assignment import Request
from tuner.measure.energy import Counter, joules_between, readings
from tuner.measure.outcome import Timed
from tuner.measure.race import Runs
from tuner.measure.timing import PROMOTION, TimingPlan
from tuner.settings import Settings
from tuner.target.target import Target
from tuner.workload.workload import Workload

# Counters tell a millisecond; the short run is as long as a processor takes to its clocks.
SHORT = replace(PROMOTION, budget_s=1.0, max_samples=10_000)
LONG = replace(PROMOTION, budget_s=4.0, max_samples=10_000)


def energy(workload: Workload, kernel: Promoted, target: Target, settings: Settings) -> float:
    """Joules of a call of a kernel that runs alone on the first lane, or on the first GPU.

    Raises NoEnergyCounters, and RaceError where a run fails or other work hides it.
    """
    counters = energy_counters(target)
    with platform_of(target).runner(target, settings) as runner:
        runs = runner.prepare(workload, threads=kernel.stored.threads, seed=settings.seed)
        short = _run(runs, kernel, settings, counters, SHORT)
        long = _run(runs, kernel, settings, counters, LONG)
    return energy_of_call(workload, short, long)


def energy_of_call(
    workload: Workload, short: tuple[float, float, float], long: tuple[float, float, float]
) -> float:
    """From joules, seconds and seconds of a call of both runs. Raises RaceError."""
    joules, seconds = long[0] - short[0], long[1] - short[1]
    if joules <= 0.0 or seconds <= 0.0:
        raise RaceError(
            f"the energy of {workload.spec} is hidden by other work: {LONG.budget_s:g} s took no "
            f"more than {SHORT.budget_s:g} s; measure it on an idle machine"
        )
    return joules / seconds * long[2]


def _run(
    runs: Runs,
    kernel: Promoted,
    settings: Settings,
    counters: Sequence[Counter],
    plan: TimingPlan,
) -> tuple[float, float, float]:
    """Joules and seconds of the whole run, and seconds of a call in it."""
    request = Request(
        name="kernel",
        library=str(kernel.path),
        symbol=kernel.symbol,
        timeout_s=settings.run_timeout_s,
        plan=plan,
    )
    before, started = readings(counters), time.monotonic()
    outcome = runs.measure(request)
    seconds, after = time.monotonic() - started, readings(counters)
    if not isinstance(outcome, Timed):
        raise RaceError(
            f"{kernel.symbol} failed while its energy was measured: {outcome.kind}: "
            f"{outcome.message}"
        )
    return joules_between(counters, before, after), seconds, outcome.median_s
