"""The default schedule takes part where a trial has time for a few of its calls."""

from __future__ import annotations

import pytest

from tests.support.targets import GOLDEN_COVE
from tuner.workers.fleet.messages import Limits, Problem
from tuner.workers.jobs.task import default_fits
from tuner.workload.spec import parse_spec


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ("matmul:M=512,N=512,K=512", True),
        ("softmax:M=4096,N=4096", True),
        ("matmul:M=4096,N=4096,K=4096", False),
        ("attention:B=1,H=12,S=4096,D=64", False),
    ],
)
def test_by_the_work_of_a_call(spec: str, fits: bool) -> None:
    problem = Problem(workload=parse_spec(spec), target=GOLDEN_COVE, threads=1, seed=0)
    assert default_fits(problem, Limits().run_timeout_s) == fits
    assert default_fits(problem, 3600.0)
