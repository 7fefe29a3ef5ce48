"""The display of a run: what it says after which events, and that it is silent when told to be."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from tuner.cli.progress import TuningDisplay, gain_text
from tuner.measure.outcome import Conditions, Failed, FailureKind, Timed, Trial
from tuner.tuning import BestImproved, TrialRecorded
from tuner.workers.jobs.progress import (
    ModelGain,
    ModelLate,
    ModelRound,
    Phase,
    TaskFinished,
    TaskStarted,
    WorkerNotice,
)
from tuner.workload.spec import parse_spec

CONDITIONS = Conditions(lane="cpu:1", isolation="none")
MATMUL = parse_spec("matmul:M=100,N=100,K=100")  # two million operations


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def started(*, trials: int = 10, seconds: float | None = 60.0, recorded: int = 0) -> TaskStarted:
    return TaskStarted(
        position=0,
        workload=MATMUL,
        space_size=1234,
        recorded=recorded,
        trials=trials,
        seconds=seconds,
    )


def timed(shown: TuningDisplay, number: int, seconds: float, *, better: bool) -> None:
    outcome = Timed(
        samples_s=(seconds,), max_rel_error=0.0, conditions=CONDITIONS, artifact="0" * 64
    )
    trial = Trial(number=number, config={}, outcome=outcome)
    shown.observe(TrialRecorded(trial=trial))
    if better:
        shown.observe(BestImproved(trial=trial, median_s=seconds, previous_s=None))


def failed(shown: TuningDisplay, number: int) -> None:
    outcome = Failed(kind=FailureKind.BUILD_ERROR, message="no")
    shown.observe(TrialRecorded(trial=Trial(number=number, config={}, outcome=outcome)))


def display(
    *, quiet: bool = False, terminal: bool = False
) -> tuple[TuningDisplay, io.StringIO, Clock]:
    stream, clock = io.StringIO(), Clock()
    console = Console(file=stream, width=240, force_terminal=terminal, highlight=False)
    return TuningDisplay(console, quiet=quiet, clock=clock), stream, clock


FINISHED = TaskFinished(position=0, kernel="k1", error=None)


def test_the_last_state_says_best_speed_rate_and_failures() -> None:
    shown, stream, clock = display()
    with shown:
        shown.observe(started())
        timed(shown, 0, 2e-3, better=True)
        clock.now_s += 2
        failed(shown, 1)
        timed(shown, 2, 1e-3, better=True)
        timed(shown, 3, 5e-3, better=False)
        shown.observe(FINISHED)
    first, *_, last = stream.getvalue().splitlines()
    assert first == f"{MATMUL.spec}: 1,234 configs, 10 trials"
    expected = (
        "  4/10  best 1.00 ms (2.00 GFLOP/s)  2.00× the default  2.0 trials/s  3 s left  "
        "1 failed (build_error 1)"
    )
    assert last == MATMUL.spec + expected


def test_without_a_terminal_improvements_are_lines_but_not_too_many() -> None:
    shown, stream, clock = display()
    with shown:
        shown.observe(started(trials=100))
        for number in range(20):
            timed(shown, number, 1.0 / (number + 1), better=True)
            clock.now_s += 0.5
    assert 3 <= len(stream.getvalue().splitlines()) <= 7


def test_time_left_is_bounded_by_the_time_budget() -> None:
    shown, stream, clock = display()
    with shown:
        shown.observe(started(trials=1000, seconds=5.0))
        clock.now_s += 1
        timed(shown, 0, 1.0, better=True)
        shown.observe(FINISHED)
    assert "4 s left" in stream.getvalue()


def test_recorded_trials_count_but_do_not_make_the_rate() -> None:
    shown, stream, clock = display()
    with shown:
        shown.observe(started(recorded=2))
        clock.now_s += 1
        timed(shown, 2, 3.0, better=True)
        shown.observe(FINISHED)
    assert "continued after 2 recorded trials" in stream.getvalue()
    assert "3/10  best 3.00 s" in stream.getvalue() and "1.0 trials/s" in stream.getvalue()


def test_a_phase_and_a_lost_worker_are_told() -> None:
    shown, stream, _ = display()
    with shown:
        shown.observe(Phase(name="starting workers"))
        shown.observe(started())
        shown.observe(WorkerNotice(message="build:0 was lost and replaced"))
        shown.observe(Phase(name="promotion"))
        shown.observe(TaskFinished(position=0, kernel=None, error="nothing could be verified"))
    lines = stream.getvalue().splitlines()
    assert lines[0] == "starting workers"
    assert lines[2] == "build:0 was lost and replaced"
    assert lines[3].endswith("promotion") and lines[4].endswith("nothing could be verified")


def test_a_kernel_that_is_stored_beside_the_next_one_has_its_own_last_line() -> None:
    shown, stream, _ = display()
    with shown:
        shown.observe(started())
        timed(shown, 0, 1e-3, better=True)
        shown.observe(replace(started(trials=7), position=1))
        shown.observe(FINISHED)
        timed(shown, 0, 2e-3, better=False)
        shown.observe(TaskFinished(position=1, kernel="k2", error=None))
    lines = stream.getvalue().splitlines()
    assert "1/10  best 1.00 ms" in lines[-2] and "1/7" in lines[-1]


def test_quiet_prints_nothing() -> None:
    shown, stream, _ = display(quiet=True, terminal=True)
    with shown:
        shown.observe(started())
        timed(shown, 0, 1.0, better=True)
        shown.observe(Phase(name="promotion"))
        shown.observe(FINISHED)
    assert stream.getvalue() == ""


def test_what_is_left_is_the_models() -> None:
    """By the trials of all its kernels, and by the time of the command where that is less."""
    shown, stream, clock = display()
    with shown:
        shown.whole(90.0)
        shown.observe(ModelRound(trials=0, budget=40, searched=0, kernels=4))
        shown.observe(started(trials=6))
        timed(shown, 0, 2e-3, better=True)
        clock.now_s += 4
        timed(shown, 1, 1e-3, better=True)
        clock.now_s += 40
        shown.observe(ModelRound(trials=6, budget=40, searched=1, kernels=4))
        shown.observe(started(trials=12, recorded=6))
        timed(shown, 6, 1e-3, better=True)
    lines = [line for line in stream.getvalue().splitlines() if "best" in line]
    assert lines[1].endswith("0.5 trials/s  model 0/4 kernels, 1 min 16 s left")
    assert lines[-1].endswith("model 1/4 kernels, 46 s left")


def test_what_is_left_of_a_model_that_will_be_late_is_until_its_end() -> None:
    shown, stream, clock = display()
    with shown:
        shown.whole(30.0)
        shown.observe(started(trials=6))
        clock.now_s += 20
        late = ModelLate(kernels=20, unsearched=18, seconds=45.0)
        shown.observe(late)
        clock.now_s += 15
        timed(shown, 0, 2e-3, better=True)
        shown.observe(replace(late, seconds=70.2, before_s=45.0))
        clock.now_s += 10
        timed(shown, 1, 1e-3, better=True)
    lines = stream.getvalue().splitlines()
    assert "18 of 20 get one trial each, which takes about 45 s longer" in lines[-4]
    assert lines[-3].endswith("model, 40 s left")
    assert "will be about 71 s late, not 45 s late" in lines[-2]
    assert lines[-1].endswith("model, 55 s left")


def test_whether_more_time_pays() -> None:
    assert gain_text(ModelGain(seconds=60.0, before_s=1e-3, after_s=0.95e-3)) == (
        "the last 1 min 00 s of rounds made the kernels 5.0% faster: as much time again should "
        "still pay"
    )
    assert "less than 1.0%: more time hardly pays" in gain_text(
        ModelGain(seconds=60.0, before_s=1e-3, after_s=0.999e-3)
    )
