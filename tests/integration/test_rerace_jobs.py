"""A served kernel raced again on a real fleet, against what is installed here."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.fleet_job import QUICK, open_in
from tests.support.targets import host_target
from tuner.db import jobs, kernels, promotions, races, targets, workloads
from tuner.db.engine import Database
from tuner.measure.regression import CANARY, DEFAULT
from tuner.workers.jobs import reracing
from tuner.workers.jobs.orchestrator import OrchestratorOptions, run_job
from tuner.workload.spec import parse_spec, to_document

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(170)]

SPEC = "matmul:M=16,N=48,K=24"
EVERY = timedelta(days=7)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_in(tmp_path)
    yield opened
    opened.close()


def test_a_kernel_is_raced_with_the_default_and_the_libraries(
    database: Database, tmp_path: Path
) -> None:
    options = OrchestratorOptions(artifacts=tmp_path / "artifacts", limits=QUICK, running_jobs=1)
    target, workload = host_target(), parse_spec(SPEC)
    with database.write() as session:
        targets.remember(session, target)
        key = workloads.remember(session, workload, to_document(workload))
        new = jobs.NewJob(workloads=(key,), target=target.key, threads=1, trials=4)
        tuned = jobs.create(session, new)[0].id
    assert run_job(database, tuned, options).job.state == jobs.SUCCEEDED
    with database.write() as session:
        again = reracing.queue(session, target.key, EVERY)
    assert again is not None
    report = run_job(database, again, options)
    assert (report.job.state, report.job.error) == (jobs.SUCCEEDED, None)
    with database.write() as session:
        kernel = kernels.find_promoted(session, key, target.key, 1)
        assert kernel is not None and report.job.tasks[0].kernel == kernel.id
        (race,) = races.series(session, kernel.id)
        assert reracing.queue(session, target.key, EVERY) is None
    assert race.error is None and race.record is not None
    contests = {contest.contender: contest for contest in race.record.contests}
    assert {DEFAULT, "numpy"} <= contests.keys()
    assert contests["numpy"].version == race.libraries["numpy"]
    for contest in contests.values():
        low, high = contest.ratio.ci95
        assert 0 < low <= contest.ratio.value <= high and contest.median_s > 0


def test_a_canary_races_beside_the_champion(database: Database, tmp_path: Path) -> None:
    options = OrchestratorOptions(
        artifacts=tmp_path / "artifacts", limits=QUICK, running_jobs=1, canary_races=50
    )
    target, workload = host_target(), parse_spec(SPEC)
    with database.write() as session:
        targets.remember(session, target)
        key = workloads.remember(session, workload, to_document(workload))
        new = jobs.NewJob(workloads=(key,), target=target.key, threads=1, trials=1)
        tuned = jobs.create(session, new)[0].id
    assert run_job(database, tuned, options).job.state == jobs.SUCCEEDED
    with database.write() as session:
        champion = kernels.find_promoted(session, key, target.key, 1)
        assert champion is not None
        rival = promotions.NewKernel(
            workload=key, target=target.key, threads=1, config={}, artifact=champion.artifact,
            schedule=dict(kernels.schedule(session, champion.id)), versions={},
            median_s=champion.median_s, ci95_s=champion.ci95_s, gflops=1.0,
            roofline_fraction=None, max_rel_error=0.0, verified=True, default_median_s=None,
            previous=champion.id,
        )  # fmt: skip
        canary = promotions.promote(session, rival, canary=True)
        again = reracing.queue(session, target.key, EVERY)
    assert canary.state == kernels.CANARY and again is not None
    assert run_job(database, again, options).job.state == jobs.SUCCEEDED
    with database.read() as session:
        (race,) = races.series(session, champion.id)
        assert race.record is not None
        (contest,) = [each for each in race.record.contests if each.contender == CANARY]
        assert contest.version == canary.id and contest.ratio.value == pytest.approx(1.0, rel=0.5)
        assert kernels.get(session, champion.id).state == kernels.PROMOTED
