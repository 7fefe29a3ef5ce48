"""A model's job takes what an equal one has found that ended while it waited."""

from __future__ import annotations

from dataclasses import replace

from tests.support.database_samples import ManualClock
from tests.support.targets import ZEN5
from tuner.db import events, jobs, leases, targets, workloads
from tuner.db.engine import Database
from tuner.db.jobs import Job, NewJob
from tuner.db.leases import Lease
from tuner.workers.jobs.equal_jobs import take_results
from tuner.workload.spec import parse_spec, to_document

SPECS = tuple(f"softmax:M=4,N={n}" for n in (4, 8, 12))
CLOCK_STEP_S = 10.0


def queued(database: Database, *, model: str = "m", trials: int = 8) -> Job:
    with database.write() as session:
        parsed = [parse_spec(spec) for spec in SPECS]
        new = NewJob(
            workloads=tuple(
                workloads.remember(session, each, to_document(each)) for each in parsed
            ),
            target=targets.remember(session, ZEN5),
            threads=1,
            trials=trials,
            kind=jobs.MODEL,
            settings={"model": model},
        )
        return jobs.create(session, new)[0]


def claimed(database: Database, job: Job) -> tuple[Job, Lease]:
    with database.write() as session:
        return leases.claim(session, job.id, owner="here:1")


def succeed(database: Database, job: Job) -> None:
    """With a kernel, with a task that needs none, and with one that failed and is not needed."""
    _, lease = claimed(database, job)
    with database.write() as session:
        leases.note_task(session, lease, 0, state="succeeded", kernel="k_1")
        leases.note_task(session, lease, 1, state="succeeded")
        leases.note_task(session, lease, 2, state="failed", error="not verified")
        leases.finish(session, lease, jobs.SUCCEEDED)


def test_what_an_equal_job_found_meanwhile_is_taken(database: Database, clock: ManualClock) -> None:
    first, second = queued(database), queued(database)
    clock.advance(CLOCK_STEP_S)
    succeed(database, first)
    job, lease = claimed(database, second)
    assert take_results(database, lease, job)
    with database.read() as session:
        after = jobs.get(session, job.id)
        notes = [event.data for event in events.after(session, job.id, 0) if event.kind == "note"]
    assert [(task.state, task.kernel, task.error) for task in after.tasks] == [
        ("succeeded", "k_1", None),
        ("succeeded", None, None),
        ("failed", None, "not verified"),
    ]
    assert len(notes) == 1 and "nothing was measured" in notes[0]["text"]


def test_a_job_that_asks_for_something_else_or_later_searches(
    database: Database, clock: ManualClock
) -> None:
    first, other, longer = queued(database), queued(database, model="n"), queued(database, trials=9)
    clock.advance(CLOCK_STEP_S)
    succeed(database, first)
    clock.advance(CLOCK_STEP_S)
    for job in (other, longer, queued(database)):
        assert not take_results(database, claimed(database, job)[1], job)


def test_a_job_that_has_trials_or_was_resumed_searches(
    database: Database, clock: ManualClock
) -> None:
    first, second = queued(database), queued(database)
    clock.advance(CLOCK_STEP_S)
    succeed(database, first)
    job, lease = claimed(database, second)
    begun = replace(job, tasks=(replace(job.tasks[0], trials_done=1), *job.tasks[1:]))
    assert not take_results(database, lease, begun)
    with database.write() as session:
        leases.finish(session, lease, jobs.FAILED, error="no kernel")
        resumed = jobs.resume(session, job.id)
    assert not take_results(database, claimed(database, resumed)[1], resumed)
