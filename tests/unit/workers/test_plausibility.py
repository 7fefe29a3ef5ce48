"""What cannot be true is no record: timings above the measured limits become failures,
after the limits were measured again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.measured_target import GPU, GPU_LIMITS
from tests.support.targets import ZEN5
from tuner.measure.outcome import Conditions, Failed, FailureKind, Timed, Trial
from tuner.target.limits import LimitsError
from tuner.target.target import Bandwidth, Limits
from tuner.workers.fleet.messages import Problem
from tuner.workers.jobs.plausibility import Judge
from tuner.workload.spec import parse_spec

TABLE = tuple(
    Bandwidth(working_set_bytes=2**exponent, read=1e12, write=1e12, copy=1e12)
    for exponent in (14, 20, 26)
)
LIMITS = Limits(fma_flops=1e11, fma_flops_best=1e11, bandwidth=TABLE)
WORKLOAD = parse_spec("matmul:M=100,N=100,K=100")  # 2e6 operations: 20 us at the limit


def trial(seconds: float) -> Trial:
    conditions = Conditions(lane="cpu:1", isolation="process")
    return Trial(
        number=1,
        config={},
        outcome=Timed(samples_s=(seconds,), max_rel_error=0.0, conditions=conditions, artifact="a"),
    )


def unmeasured() -> Limits:
    raise LimitsError("no compiler")


def judge(measured: Limits, reported: list[Limits]) -> Judge:
    """A judge on a machine that measures these limits when asked again."""
    problem = Problem(workload=WORKLOAD, target=replace(ZEN5, limits=LIMITS), threads=1)
    return Judge(problem, remeasured=lambda: measured, on_limits=reported.append)


def test_a_time_within_the_limits_stands() -> None:
    reported: list[Limits] = []
    checker = judge(LIMITS, reported)
    assert checker.judged(trial(20e-6)) == trial(20e-6)
    assert (
        reported == []
        and checker.floor_s == pytest.approx(20e-6)
        and checker.fraction(40e-6) == pytest.approx(0.5)
    )


def test_limits_are_measured_once_more_before_the_verdict() -> None:
    reported: list[Limits] = []
    checker = judge(LIMITS, reported)
    verdict = checker.judged(trial(10e-6)).outcome
    assert isinstance(verdict, Failed) and verdict.kind is FailureKind.IMPLAUSIBLE
    assert "200.0 GFLOP/s is 2.00 times the 100.0" in verdict.message
    checker.judged(trial(10e-6))
    assert len(reported) == 1


def test_a_machine_that_turns_out_faster_is_believed() -> None:
    reported: list[Limits] = []
    checker = judge(replace(LIMITS, fma_flops_best=1.9e11), reported)
    assert isinstance(checker.judged(trial(10e-6)).outcome, Timed)
    assert [limits.fma_flops_best for limits in reported] == [1.9e11]


def test_a_machine_whose_speed_varies_has_no_floor_to_end_a_search_at() -> None:
    """Seen on a shared one: 84 GFLOP/s in the median, 140 at best; searches ended after
    two trials."""
    problem = Problem(
        workload=WORKLOAD,
        target=replace(ZEN5, limits=replace(LIMITS, fma_flops_best=1.6e11)),
        threads=1,
    )
    checker = Judge(problem, remeasured=unmeasured, on_limits=lambda limits: None)
    assert checker.floor_s is None and checker.fraction(40e-6) == pytest.approx(0.5)


def test_without_limits_nothing_is_judged() -> None:
    problem = Problem(workload=WORKLOAD, target=replace(ZEN5, limits=None), threads=1)
    checker = Judge(problem, remeasured=unmeasured, on_limits=lambda limits: None)
    assert (
        checker.judged(trial(1e-12)) == trial(1e-12)
        and checker.floor_s is None
        and checker.fraction(1.0) is None
    )


def test_rows_that_no_index_names_are_not_read() -> None:
    """A hundred rows of a table of 4 GB in 2 us: 50 GB/s of them, and of what is written."""
    workload = parse_spec("embedding:N=100,V=1000000,D=1000")
    problem = Problem(workload=workload, target=replace(ZEN5, limits=LIMITS), threads=1)
    checker = Judge(problem, remeasured=unmeasured, on_limits=lambda _: None)
    assert checker.judged(trial(2e-6)) == trial(2e-6)
    assert checker.fraction(2e-6) == pytest.approx(0.4, rel=1e-3)


def test_where_limits_cannot_be_measured_again_the_stored_ones_decide() -> None:
    problem = Problem(workload=WORKLOAD, target=replace(ZEN5, limits=LIMITS), threads=1)
    checker = Judge(problem, remeasured=unmeasured, on_limits=lambda _: None)
    assert isinstance(checker.judged(trial(10e-6)).outcome, Failed)


def test_a_gpu_is_judged_by_its_own_limits() -> None:
    """4096 each way in half precision: 153 us at the median of its fastest unit."""
    workload = parse_spec("matmul:M=4096,N=4096,K=4096,dtype=float16")
    reported: list[Limits] = []
    checker = Judge(
        Problem(workload=workload, target=GPU, threads=1),
        remeasured=lambda: GPU_LIMITS,
        on_limits=reported.append,
    )
    assert checker.fraction(305.4e-6) == pytest.approx(0.5, rel=1e-3)
    assert checker.floor_s == pytest.approx(2 * 4096**3 / 990e12)
    assert checker.judged(trial(140e-6)) == trial(140e-6)
    verdict = checker.judged(trial(100e-6)).outcome
    assert isinstance(verdict, Failed) and verdict.kind is FailureKind.IMPLAUSIBLE
    assert reported == [GPU_LIMITS]


@pytest.mark.parametrize(("activations", "rate"), [("int8", 4), ("float32", 1)])
def test_weights_may_be_unpacked_by_looking_them_up(activations: str, rate: int) -> None:
    """Only multiply-adds are counted, of integers at the rate of their instructions."""
    workload = parse_spec(f"qdense:M=1,N=4096,K=4096,activations={activations}")
    problem = Problem(workload=workload, target=replace(ZEN5, limits=LIMITS), threads=1)
    checker = Judge(problem, remeasured=unmeasured, on_limits=lambda _: None)
    products_s = 2 * 4096**2 / rate / LIMITS.fma_flops
    assert isinstance(checker.judged(trial(products_s)).outcome, Timed)
    assert isinstance(checker.judged(trial(products_s / 2)).outcome, Failed)
