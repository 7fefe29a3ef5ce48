"""A foreign kernel judged: verified, then timed in turn with a kernel that we have."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Protocol

from tuner.errors import TunerError
from tuner.measure.assignment import Placement
from tuner.measure.foreign.compiler import compile_source
from tuner.measure.foreign.examination import Contestant, Examination
from tuner.measure.foreign.verdict import ForeignTime, Guilty, Verdict, VerdictName
from tuner.measure.runner import RunnerProcess
from tuner.measure.statistics import MIN_ROUNDS, race_median_ci95, ratio_of_medians
from tuner.runtime.link import system_toolchain
from tuner.workload.workload import Workload

ROUNDS = 7  # fresh processes of each, in turn
LONG_S = 0.05  # of kernels that take so long, MIN_ROUNDS say enough


class RivalFailed(TunerError):
    """The kernel that a foreign one was to be timed with is itself not right, or lost."""

    code = "race"


class Examiner(Protocol):
    """Verifies and times contestants of one workload. Each method raises Guilty."""

    def verify(self, contestant: Contestant) -> float: ...

    def time(self, contestant: Contestant) -> tuple[float, ...]: ...


def judge_contestant(
    examination: Examiner, contestant: Contestant, rival: Contestant | None
) -> Verdict:
    """The verdict; with a time only where there is a rival. Raises RivalFailed."""
    try:
        error = examination.verify(contestant)
        time = None if rival is None else _time(examination, contestant, rival)
    except Guilty as guilty:
        return guilty.verdict
    return Verdict(
        name=VerdictName.VERIFIED,
        message="right on all kinds of inputs, in every call",
        max_rel_error=error,
        time=time,
    )


def _time(examination: Examiner, contestant: Contestant, rival: Contestant) -> ForeignTime:
    own: list[tuple[float, ...]] = []
    others: list[tuple[float, ...]] = []
    for number in range(ROUNDS):
        others.append(_rival_time(examination, rival))
        own.append(examination.time(contestant))
        if number + 1 >= MIN_ROUNDS and min(own[-1]) >= LONG_S:
            break
    median_s, ci95_s = race_median_ci95(own)
    rival_median_s, _ = race_median_ci95(others)
    return ForeignTime(
        median_s=median_s,
        ci95_s=ci95_s,
        rival=rival.name,
        rival_median_s=rival_median_s,
        ratio=ratio_of_medians(own, others),
    )


def _rival_time(examination: Examiner, rival: Contestant) -> tuple[float, ...]:
    try:
        return examination.time(rival)
    except Guilty as guilty:
        raise RivalFailed(f"the {rival.name} failed beside a foreign kernel: {guilty}") from guilty


def judge_source(
    workload: Workload,
    source: str,
    symbol: str,
    placement: Placement,
    *,
    rival: Contestant | None,
    timeout_s: float = 30.0,
) -> Verdict:
    """The verdict on a C text with a function `symbol`, compiled and run on this machine.

    `timeout_s`: of each of its processes. Raises UsageError for a workload with
    constants, RivalFailed, RunnerError, LinkError without a compiler, FenceMissing.
    """
    toolchain = system_toolchain()
    with (
        tempfile.TemporaryDirectory(prefix="tuner-judge-") as folder,
        RunnerProcess() as process,
        Examination(workload, process, placement, toolchain, timeout_s=timeout_s) as examination,
    ):
        library = Path(folder, "kernel.so")
        try:
            library.write_bytes(compile_source(source, symbol, toolchain))
        except Guilty as guilty:
            return guilty.verdict
        contestant = Contestant(name="candidate", library=str(library), symbol=symbol)
        return judge_contestant(examination, contestant, rival)
