"""The curve of best times that `tuner show --plot` draws in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.api.dashboard.charts.curve import Curve, Level
    from tuner.api.schemas import JobAnswer, KernelAnswer, TrialAnswer
    from tuner.cli.backend.roles import Backend

RIVALS = 5  # most levels of libraries
OWN = ("default", "incumbent")  # contenders of a race that are neither libraries nor trials


def curve_lines(backend: Backend, job: JobAnswer, width: int) -> list[str]:
    """The curves of all workloads of a job as lines of text, at most `width` columns wide."""
    from tuner.api.dashboard.charts.terminal import plot

    trials: dict[int, list[TrialAnswer]] = {}
    for trial in backend.jobs.trials(job.id, outcomes=()):
        trials.setdefault(trial.workload, []).append(trial)
    lines: list[str] = []
    for position, task in enumerate(job.tasks):
        kernel = None if task.kernel is None else backend.kernels.get(task.kernel)
        own = trials.get(position, [])
        lines += ["", task.workload.spec, *plot(curve_of(own, levels_of(own, kernel)), width=width)]
    return lines


def curve_of(trials: Sequence[TrialAnswer], levels: Sequence[Level]) -> Curve:
    """The curve of one workload's trials, which are in the order of their numbers."""
    import numpy as np

    from tuner.api.dashboard.charts.curve import Curve, record_mask

    ok = [(trial.number, trial.median_s) for trial in trials if trial.median_s is not None]
    failed = np.array([trial.number for trial in trials if trial.median_s is None], np.int64)
    numbers = np.array([number for number, _ in ok], np.int64)
    medians_s = np.array([median_s for _, median_s in ok], np.float64)
    records = record_mask(medians_s)
    return Curve(
        total=len(trials),
        failed=len(failed),
        axis="trial",
        end=float(max((trial.number for trial in trials), default=0)),
        numbers=numbers,
        positions=numbers.astype(np.float64),
        medians_s=medians_s,
        record_numbers=numbers[records],
        record_positions=numbers[records].astype(np.float64),
        record_medians_s=medians_s[records],
        failure_positions=failed.astype(np.float64),
        levels=levels,
    )


def levels_of(trials: Sequence[TrialAnswer], kernel: KernelAnswer | None) -> list[Level]:
    """Levels to draw: the default schedule, the roofline, and libraries of the race."""
    from tuner.api.dashboard.charts.curve import Level

    levels = [
        Level(name="default", seconds=trial.median_s, kind="default")
        for trial in trials[:1]
        if trial.number == 0 and trial.median_s is not None
    ]
    if kernel is None:
        return levels
    if kernel.roofline_fraction:
        levels.append(
            Level(
                name="roofline", seconds=kernel.median_s * kernel.roofline_fraction, kind="roofline"
            )
        )
    timed = [
        (name, times["median_s"])
        for name, times in kernel.race.items()
        if isinstance(times, dict) and times.get("median_s")
    ]
    rivals = [
        (name, median_s)
        for name, median_s in timed
        if name not in OWN and not name.startswith("trial ")
    ]
    return levels + [
        Level(name=name[:16], seconds=float(median_s), kind="rival")
        for name, median_s in rivals[:RIVALS]
    ]
