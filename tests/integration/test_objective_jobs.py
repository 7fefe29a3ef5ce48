"""Jobs with cold caches and objectives beside time, on a real Ray."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet_job import open_in, run_here
from tests.support.targets import host_target
from tuner.db import jobs, kernels, targets, tradeoffs, workloads
from tuner.db import trials as trial_rows
from tuner.db.engine import Database
from tuner.measure.cache import Cache
from tuner.measure.objective import front, goal_of
from tuner.measure.outcome import Timed
from tuner.workload.spec import parse_spec, to_document

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(170)]

SPEC = "matmul:M=64,N=48,K=40"
TRIALS = 16


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_in(tmp_path)
    yield opened
    opened.close()


def queue(database: Database, objective: str, cache: Cache, trials: int = TRIALS) -> str:
    target, workload = host_target(), parse_spec(SPEC)
    with database.write() as session:
        targets.remember(session, target)
        key = workloads.remember(session, workload, to_document(workload))
        new = jobs.NewJob(
            workloads=(key,),
            target=target.key,
            threads=1,
            trials=trials,
            seed=1,
            cache=cache,
            goal=goal_of(objective),
        )
        return jobs.create(session, new)[0].id


def test_a_job_by_code_size_keeps_the_front_of_its_trials(
    database: Database, tmp_path: Path
) -> None:
    job = queue(database, "code_size", "warm")
    report = run_here(database, job, tmp_path)
    assert report.job.state == jobs.SUCCEEDED
    key, target = parse_spec(SPEC).key, host_target().key
    with database.read() as session:
        recorded = trial_rows.of_task(session, job)
        kept = tradeoffs.choices(session, key, target, 1)
        assert report.job.tasks[0].kernel is not None
        result = kernels.get(session, report.job.tasks[0].kernel)
    told = [each for each in recorded if isinstance(each.outcome, Timed)]
    assert told and all(each.code_bytes and each.code_bytes > 0 for each in told)
    assert all(each.figures.workspace_bytes is not None for each in told)
    assert kept[0].state == kernels.PROMOTED and {each.cache for each in kept} == {"warm"}
    assert all(each.verified and each.code_bytes for each in kept)
    best = front(kept, tradeoffs.JUDGED_BY, lambda each: each.figures)
    assert all(each in best for each in kept[1:]), "nobody else is as good in everything"
    assert result.code_bytes == min(each.code_bytes or 0 for each in kept)
    assert len({each.artifact for each in kept}) == len(kept)


def test_a_cold_job_leaves_the_warm_kernel_alone(database: Database, tmp_path: Path) -> None:
    warm = run_here(database, queue(database, "time", "warm", 4), tmp_path).job
    cold = run_here(database, queue(database, "time", "cold", 4), tmp_path).job
    assert (warm.state, cold.state) == (jobs.SUCCEEDED, jobs.SUCCEEDED)
    key, target = parse_spec(SPEC).key, host_target().key
    with database.read() as session:
        told = trial_rows.of_task(session, cold.id)
        fast = kernels.find_promoted(session, key, target, 1)
        slow = kernels.find_promoted(session, key, target, 1, cache="cold")
    states = {each.outcome.conditions.cache for each in told if isinstance(each.outcome, Timed)}
    assert states == {"cold"} and fast is not None and slow is not None
    assert (fast.job, slow.job) == (warm.id, cold.id)
    assert slow.median_s > fast.median_s, "a call that finds nothing in the caches takes longer"
