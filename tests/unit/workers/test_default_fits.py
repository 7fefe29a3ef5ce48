"""The default schedule takes part where there is time for a few of its calls."""

from __future__ import annotations

import pytest

from tests.support.targets import GOLDEN_COVE
from tuner.workers.fleet.messages import Limits, Problem
from tuner.workers.jobs.task import default_fits
from tuner.workload.spec import parse_spec

LONG = "matmul:M=128,N=128,K=65536"  # about a second a call


def fits(spec: str, *, run_timeout_s: float, seconds: float | None) -> bool:
    problem = Problem(workload=parse_spec(spec), target=GOLDEN_COVE, threads=1, seed=0)
    return default_fits(problem, run_timeout_s=run_timeout_s, seconds=seconds)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("matmul:M=512,N=512,K=512", True),
        ("softmax:M=4096,N=4096", True),
        (LONG, True),
        ("matmul:M=4096,N=4096,K=4096", False),
        ("attention:B=1,H=12,S=4096,D=64", False),
    ],
)
def test_by_the_work_of_a_call(spec: str, expected: bool) -> None:
    assert fits(spec, run_timeout_s=Limits().run_timeout_s, seconds=None) == expected
    assert fits(spec, run_timeout_s=3600.0, seconds=None)


@pytest.mark.parametrize(
    ("spec", "seconds", "expected"),
    [
        (LONG, 12.0, False),
        (LONG, 30.0, False),
        (LONG, 60.0, True),
        ("matmul:M=512,N=512,K=512", 12.0, True),
        ("matmul:M=4096,N=4096,K=4096", 1e6, False),  # a trial's own limit holds as well
    ],
)
def test_by_its_share_of_the_search(spec: str, seconds: float, expected: bool) -> None:
    assert fits(spec, run_timeout_s=Limits().run_timeout_s, seconds=seconds) == expected
