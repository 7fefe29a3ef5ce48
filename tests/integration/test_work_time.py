"""Durations of a job by one clock, the database's, though the service's own is another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browsing import browser
from tests.support.database_samples import ManualClock, sample_target, timed
from tests.support.live_service import LiveService, options_for, serving
from tuner.db import jobs, leases, targets, trials, workloads
from tuner.workload.spec import parse_spec, to_document

MOST_S = 100.0


@pytest.fixture
def clock() -> ManualClock:
    """Many months behind this machine's."""
    return ManualClock()


@pytest.fixture
def service(tmp_path: Path, clock: ManualClock) -> Iterator[LiveService]:
    options = options_for(f"sqlite:///{tmp_path}/tuner.sqlite", tmp_path)
    with serving(options, clock=clock) as live:
        yield live


def test_a_running_jobs_seconds_are_the_databases(service: LiveService, clock: ManualClock) -> None:
    key = service.key("admin")
    job = service.queue()
    client = service.client(key)
    assert client.job(job).elapsed_s is None
    service.claim(job)
    clock.advance(90)
    assert client.job(job).elapsed_s == 90.0
    assert [each.elapsed_s for each in client.jobs()] == [90.0]
    with browser(service, key) as pages:
        page = pages.get(f"/jobs/{job}").text
        assert "elapsed 1 min 30 s" in page and "created 1 min 30 s ago" in page
        assert "1 min 30 s ago" in pages.get("/").text


def test_pauses_between_runs_do_not_count(service: LiveService, clock: ManualClock) -> None:
    job = service.queue()
    lease = service.claim(job)
    clock.advance(40)
    with service.database.write() as session:
        leases.note_task(session, lease, 0, elapsed_s={"total": 40.0})
        leases.release(session, lease)
    clock.advance(3600)
    client = service.client(service.key("admin"))
    assert client.job(job).elapsed_s == 40.0
    service.claim(job)
    clock.advance(5)
    assert client.job(job).elapsed_s == 45.0


def test_a_models_seconds_are_for_all_its_kernels(service: LiveService, clock: ManualClock) -> None:
    with service.database.write() as session:
        keys = []
        for extent in (8, 16, 24):
            workload = parse_spec(f"softmax:M=8,N={extent}")
            keys.append(workloads.remember(session, workload, to_document(workload)))
        new = jobs.NewJob(
            workloads=tuple(keys),
            target=targets.remember(session, sample_target()),
            threads=1,
            trials=1000,
            seconds=MOST_S,
            kind=jobs.MODEL,
        )
        job = jobs.create(session, new)[0].id
    lease = service.claim(job)
    with service.database.write() as session:
        trials.record(session, lease, timed(0))
    clock.advance(10)
    with browser(service, service.key("admin")) as pages:
        assert "1 min 30 s" in pages.get(f"/jobs/{job}?task=0").text
