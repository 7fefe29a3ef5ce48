"""The runner process: every way a candidate can go wrong is named in time, and the next
candidate is none the worse."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.support.hostile_kernels import COMMON_FAILURES, addition
from tuner.errors import UsageError
from tuner.measure.assignment import Assignment, Lane, Request
from tuner.measure.core_turns import CoreTurns
from tuner.measure.outcome import Failed, FailureKind, Timed
from tuner.measure.runner import RunnerError, RunnerOptions, RunnerProcess, parent_environment
from tuner.measure.supervision import End, classify, oom_kills
from tuner.measure.timing import TimingPlan

Make = Callable[..., Request]

FAILURES = [
    *COMMON_FAILURES,
    ("abort", FailureKind.RUN_CRASH, r"SIGABRT .* assertion failed: tile > 0"),
    ("verbose", FailureKind.RUN_CRASH, "SIGXFSZ: a file grew past"),
    ("greedy", FailureKind.OUT_OF_MEMORY, "out of memory"),
    ("endless", FailureKind.RUN_TIMEOUT, "no result within 0.8 s"),
    ("stubborn", FailureKind.RUN_TIMEOUT, "no result within 0.8 s"),
]


@pytest.mark.parametrize(("behaviour", "kind", "message"), FAILURES)
def test_each_failure_is_named_in_time_and_the_next_is_unaffected(
    runner: RunnerProcess, request_for: Make, behaviour: str, kind: FailureKind, message: str
) -> None:
    request, good, before = request_for(behaviour), request_for("good"), runner.pid
    outcome = runner.measure(request)
    # Later than in time, a second after the timeout, it would be infrastructure.
    assert isinstance(outcome, Failed) and outcome.kind is kind, outcome
    assert re.search(message, outcome.message, re.DOTALL), outcome.message
    assert isinstance(runner.measure(good), Timed)
    assert runner.pid == before


def test_a_good_kernel_is_timed_with_its_conditions(
    runner: RunnerProcess, request_for: Make, lane: Lane
) -> None:
    outcome = runner.measure(request_for("good"))
    assert isinstance(outcome, Timed), outcome
    assert len(outcome.samples_s) >= 3 and all(0 < sample < 1e-3 for sample in outcome.samples_s)
    assert 0 <= outcome.max_rel_error < 1e-6 and len(outcome.artifact) == 64
    assert outcome.conditions.lane == lane.name and outcome.conditions.isolation.startswith(
        "sealed"
    )
    assert not outcome.conditions.abandoned


def test_promotion_checks_more_inputs(runner: RunnerProcess, request_for: Make) -> None:
    outcome = runner.measure(request_for("good", verification="promotion"))
    assert isinstance(outcome, Timed), outcome
    wrong = runner.measure(request_for("wrong", verification="promotion"))
    assert isinstance(wrong, Failed) and "on large inputs" in wrong.message


def test_a_promotion_can_be_prepared_before_its_first_candidate(
    lane: Lane, request_for: Make
) -> None:
    with RunnerProcess() as process:
        with pytest.raises(RunnerError, match="call prepare first"):
            process.prepare_promotion()
        process.prepare(Assignment(workload=addition(), lane=lane))
        process.prepare_promotion()
        pid = process.pid
        assert pid is not None
        assert isinstance(process.measure(request_for("good", verification="promotion")), Timed)
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        process.prepare_promotion()  # in a new process
        assert process.pid != pid
        wrong = process.measure(request_for("wrong", verification="promotion"))
        assert isinstance(wrong, Failed) and "on large inputs" in wrong.message


def test_a_hopeless_candidate_is_abandoned(runner: RunnerProcess, request_for: Make) -> None:
    outcome = runner.measure(request_for("slow", abandon_above_s=0.01))
    assert (
        isinstance(outcome, Timed) and outcome.conditions.abandoned and len(outcome.samples_s) == 2
    )
    patient = runner.measure(request_for("slow", abandon_above_s=1.0))
    assert (
        isinstance(patient, Timed) and not patient.conditions.abandoned and patient.median_s >= 0.02
    )


def test_a_call_of_a_second_is_checked_and_timed_in_one(
    runner: RunnerProcess, request_for: Make
) -> None:
    """A second call of this kernel never comes back."""
    outcome = runner.measure(request_for("long", timeout_s=10.0))
    assert isinstance(outcome, Timed) and len(outcome.samples_s) == 1 and outcome.median_s >= 1.1
    assert not outcome.conditions.abandoned
    hopeless = runner.measure(request_for("long", timeout_s=10.0, abandon_above_s=0.5))
    assert isinstance(hopeless, Timed) and hopeless.conditions.abandoned


def test_cold_caches_take_longer(runner: RunnerProcess, request_for: Make) -> None:
    cold = runner.measure(
        request_for("good", plan=TimingPlan(cache="cold", max_samples=5), timeout_s=10)
    )
    assert isinstance(cold, Timed) and cold.conditions.cache == "cold"
    warm = runner.measure(request_for("good"))
    assert isinstance(warm, Timed) and warm.conditions.cache == "warm"
    assert cold.median_s > warm.median_s


def test_secrets_and_descriptors_stay_outside(
    lane: Lane, request_for: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_TEST_TOKEN", "secret")
    with RunnerProcess() as process:
        process.prepare(Assignment(workload=addition(), lane=lane))
        assert isinstance(process.measure(request_for("token")), Timed)
        assert isinstance(process.measure(request_for("descriptors")), Timed)
        assert b"secret" not in Path(f"/proc/{process.pid}/environ").read_bytes()
    assert "TUNER_TEST_TOKEN" not in parent_environment(os.environ)


@pytest.mark.parametrize("behaviour", ["orphan", "bomb"])
def test_nothing_a_candidate_started_outlives_it(
    runner: RunnerProcess, request_for: Make, behaviour: str
) -> None:
    runner.measure(request_for(behaviour))
    assert psutil.Process(runner.pid).children(recursive=True) == []


def test_the_parent_has_one_thread_and_leaves_no_scratch(
    lane: Lane, request_for: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with RunnerProcess() as process:
        process.prepare(Assignment(workload=addition(), lane=lane))
        process.measure(request_for("abort"))
        assert psutil.Process(process.pid).num_threads() == 1
        assert [list(folder.iterdir()) for folder in tmp_path.glob("tuner-runner-*")] == [[]]
    assert list(tmp_path.glob("tuner-runner-*")) == []


def test_a_candidate_waits_while_another_run_has_its_cores(
    runner: RunnerProcess, request_for: Make, lane: Lane
) -> None:
    before_s = runner.waited_s
    with ThreadPoolExecutor(1) as pool, CoreTurns().turn(lane.cores, alone=False):
        measured = pool.submit(runner.measure, request_for("good"))
        time.sleep(0.3)
        assert not measured.done() and runner.waited_s == before_s
    assert isinstance(measured.result(), Timed)
    assert runner.waited_s > before_s + 0.2


@pytest.mark.slow
def test_a_killed_runner_is_infrastructure_and_comes_back(lane: Lane, request_for: Make) -> None:
    with RunnerProcess() as process:
        process.prepare(Assignment(workload=addition(), lane=lane))
        lost = process.pid
        assert lost is not None
        os.kill(lost, signal.SIGSTOP)
        started = time.monotonic()
        silent = process.measure(request_for("good", timeout_s=1.5))
        assert isinstance(silent, Failed) and silent.kind is FailureKind.INFRASTRUCTURE
        assert time.monotonic() - started - process.waited_s < 1.5 + 1 + 1.5
        assert isinstance(process.measure(request_for("good")), Timed)
        again = process.pid
        assert again is not None and again != lost
        os.kill(again, signal.SIGKILL)
        time.sleep(0.1)
        assert isinstance(
            process.measure(request_for("good")), Timed
        )  # found dead before the request: nothing was lost
    assert not psutil.pid_exists(lost)


def candidate_of(runner: RunnerProcess) -> psutil.Process:
    """The process of its candidate, once that has computed for a moment."""
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline:
        for child in psutil.Process(runner.pid).children():
            with suppress(psutil.NoSuchProcess):
                if child.cpu_times().user >= 0.05:
                    return child
        time.sleep(0.01)
    raise AssertionError("no candidate computes")


def test_a_candidate_that_somebody_killed_is_not_out_of_memory(
    runner: RunnerProcess, request_for: Make
) -> None:
    request = replace(request_for("endless"), timeout_s=5.0)
    killer = threading.Thread(target=lambda: candidate_of(runner).kill())
    killer.start()
    outcome = runner.measure(request)
    killer.join()
    assert isinstance(outcome, Failed) and outcome.kind is FailureKind.INFRASTRUCTURE, outcome
    assert "killed from outside (SIGKILL) while" in outcome.message


def test_one_that_the_kernel_killed_for_memory_is(tmp_path: Path) -> None:
    end = End(
        stage="timing",
        result={},
        status=signal.SIGKILL,
        timed_out=False,
        flooded=False,
        oom_killed=True,
    )
    failure = classify(end, tmp_path / "output", 1.0)
    assert failure is not None and failure.kind is FailureKind.OUT_OF_MEMORY
    counters = tmp_path / "vmstat"
    counters.write_text("oom_kill_disable 3\noom_kill 17\nunevictable_pgs_culled 0\n")
    assert oom_kills(counters) == 17 and oom_kills(tmp_path / "none") == 0


def test_children_die_with_a_killed_runner(lane: Lane, request_for: Make) -> None:
    with RunnerProcess() as process:
        process.prepare(Assignment(workload=addition(), lane=lane))
        runner_pid, seen = process.pid, list[int]()
        assert runner_pid is not None

        def kill() -> None:
            candidate_of(process)
            os.kill(runner_pid, signal.SIGKILL)

        request = replace(request_for("endless"), timeout_s=5.0)
        killer = threading.Thread(target=kill)
        killer.start()
        outcome = process.measure(request)
        killer.join()
        assert isinstance(outcome, Failed) and outcome.kind is FailureKind.INFRASTRUCTURE
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            seen = [
                process.pid
                for process in psutil.process_iter(["cpu_affinity"])
                if _is_ours(process)
            ]
            if not seen:
                break
            time.sleep(0.05)
        assert seen == []


def _is_ours(process: psutil.Process) -> bool:
    try:
        return any("libendless.so" in entry.path for entry in process.memory_maps())
    except psutil.Error:
        return False


def test_what_cannot_be_prepared_is_refused(lane: Lane) -> None:
    with RunnerProcess() as process:
        with pytest.raises(UsageError, match="2 threads does not fit lane"):
            process.prepare(Assignment(workload=addition(), lane=lane, threads=2))
        with pytest.raises(UsageError, match=r"isolation level 'fortress'.*process"):
            process.prepare(Assignment(workload=addition(), lane=lane, isolation="fortress"))
        with pytest.raises(RunnerError, match="call prepare first"):
            process.measure(Request(name="x", library="x", symbol="x"))
        process.prepare(Assignment(workload=addition(), lane=lane))


def test_a_missing_library_or_interpreter_is_told(runner: RunnerProcess) -> None:
    missing = runner.measure(Request(name="x", library="/nonexistent.so", symbol="kernel"))
    assert (
        isinstance(missing, Failed)
        and missing.kind is FailureKind.INFRASTRUCTURE
        and "/nonexistent.so" in missing.message
    )
    with pytest.raises(RunnerError, match="did not start"):
        RunnerProcess(RunnerOptions(python="/bin/false")).start()


@pytest.mark.slow
def test_a_hundred_candidates_leave_nothing_behind(
    runner: RunnerProcess, request_for: Make
) -> None:
    plan = TimingPlan(budget_s=0.0, min_samples=1, min_repeat_s=0.0, warmup_s=0.0)
    good, bad = request_for("good", plan=plan), request_for("wrong", plan=plan)
    process = psutil.Process(runner.pid)
    for request in (good, bad) * 10:
        runner.measure(request)
    before = process.num_fds(), process.memory_info().rss
    for request in (good, bad) * 50:
        runner.measure(request)
    assert process.num_fds() == before[0]
    assert process.memory_info().rss - before[1] < 1 << 20
    assert process.children() == []


@pytest.mark.parametrize(
    ("options", "processes"),
    [(RunnerOptions(measures=2), [0, 0, 1, 1]), (RunnerOptions(growth_bytes=-1), [0, 1])],
)
def test_a_runner_process_is_recycled_by_count_and_by_memory(
    lane: Lane, request_for: Make, options: RunnerOptions, processes: list[int]
) -> None:
    pids: list[int | None] = []
    with RunnerProcess(options) as process:
        process.prepare(Assignment(workload=addition(), lane=lane))
        for _ in processes:
            assert isinstance(process.measure(request_for("good")), Timed)
            pids.append(process.pid)
    assert [list(dict.fromkeys(pids)).index(pid) for pid in pids] == processes


def test_a_runner_names_its_isolation_and_times_its_cores_before_it_has_a_workload(
    lane: Lane, request_for: Make
) -> None:
    with RunnerProcess() as process:
        assert process.isolate("process") == "process"
        (seconds,) = process.calibrate(lane.cores)
        assert 10e-6 < seconds < 1.0
        with pytest.raises(UsageError, match="unknown isolation level 'fortress'"):
            process.isolate("fortress")
        process.prepare(Assignment(workload=addition(), lane=lane))
        assert isinstance(process.measure(request_for("good")), Timed)
        process.calibrate(lane.cores)
        assert isinstance(process.measure(request_for("good")), Timed), (
            "a calibration between two candidates disturbs neither"
        )
