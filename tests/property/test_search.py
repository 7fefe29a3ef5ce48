"""Whatever the expression, its space can be searched: candidates come, are told, and
the next plan is made of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.support.random_expressions import programs
from tests.support.targets import ZEN5
from tuner.measure.outcome import Conditions, Timed, Trial
from tuner.spaces.by_target import space_of
from tuner.workers.jobs.search import searcher_for
from tuner.workload.spec import workload_from_notation

TOLD = 20  # beyond the second plan


@pytest.mark.slow
@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(programs(extents=(1, 3, 8, 31)))
def test_every_program_can_be_searched(text: str) -> None:
    space = space_of(workload_from_notation(text, {}), ZEN5, 1)
    searcher = searcher_for(space, strategy="annealing", seed=0)
    conditions, rng = Conditions(lane="cpu:0", isolation="none"), np.random.default_rng(0)
    asked: list[bytes] = []
    while len(asked) < TOLD:
        points = searcher.ask(4)
        for number, point in enumerate(points, start=len(asked) + 1):
            timed = Timed(
                samples_s=(float(rng.uniform(1, 2)),),
                max_rel_error=0.0,
                conditions=conditions,
                artifact=f"{number}",
            )
            config = space.space.config(point)
            assert searcher.forecast(config) is not None
            searcher.tell(
                [Trial(number=number, config=config, outcome=timed, build_s=0.0, measure_s=0.0)]
            )
        asked += map(bytes, points)
        if len(points) < 4:
            break
    assert len(set(asked)) == len(asked) == min(TOLD, space.space.size)
