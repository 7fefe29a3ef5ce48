"""Trials, on both databases: recorded once and as they were, failures grouped, doubtful
timings marked."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contracts.together import together
from tests.support.database_samples import ManualClock, add_claimed, failed, timed
from tuner.db import jobs, trials
from tuner.db.engine import Database
from tuner.db.errors import AlreadyRecorded, NotFound
from tuner.errors import DatabaseError
from tuner.measure.outcome import Failed, FailureKind, Trial


def test_trials_come_back_as_they_were(database: Database) -> None:
    lease = add_claimed(database, 8, 9)
    recorded = [timed(0), failed(1, "line 1\x00 \ud800 of 0x1f"), timed(2, 5e-4)]
    with database.write() as session:
        for trial in recorded:
            trials.record(session, lease, trial, position=1, round=3, predicted=0.25, worker="w1")
    cleaned = Trial(
        number=1,
        config=recorded[1].config,
        outcome=Failed(kind=FailureKind.BUILD_ERROR, message="line 1\ufffd ? of 0x1f"),
    )
    with database.read() as session:
        assert trials.of_task(session, lease.job_id, 1) == (recorded[0], cleaned, recorded[2])
        assert trials.of_task(session, lease.job_id, 0) == ()
        stored = trials.get(session, lease.job_id, 2, 1)
        assert (stored.round, stored.predicted, stored.worker, stored.attempts) == (
            3,
            0.25,
            "w1",
            1,
        )
        task = jobs.get(session, lease.job_id).tasks[1]
        assert (task.trials_done, task.trials_ok, task.best_median_s) == (3, 2, 5e-4)


def test_trials_are_recorded_exactly_once(database: Database) -> None:
    lease = add_claimed(database)
    refused: list[int] = []

    def record(index: int) -> None:
        for number in range(10):
            try:
                with database.write() as session:
                    trials.record(session, lease, timed(number, 1e-3 * (index + 1)))
            except AlreadyRecorded:
                refused.append(number)

    together(3, record)
    assert sorted(refused) == sorted([*range(10), *range(10)])
    with database.read() as session:
        assert trials.numbers(session, lease.job_id) == frozenset(range(10))
        assert jobs.get(session, lease.job_id).tasks[0].trials_done == 10


def test_unknown_tasks_and_unbelievable_numbers_are_refused(database: Database) -> None:
    lease = add_claimed(database)
    with pytest.raises(NotFound, match="no task 7"), database.write() as session:
        trials.record(session, lease, timed(0), position=7)
    with pytest.raises(DatabaseError, match="must be finite"), database.write() as session:
        trials.record(session, lease, timed(0, float("inf")))
    with database.read() as session:
        assert jobs.get(session, lease.job_id).tasks[0].trials_done == 0


def test_failures_are_grouped(database: Database) -> None:
    lease = add_claimed(database)
    messages = ["tile 4 at 0x12", "tile 8 at 0x99", "other"]
    with database.write() as session:
        for number, message in enumerate(messages):
            trials.record(session, lease, failed(number, message))
        trials.record(session, lease, failed(3, "late", FailureKind.RUN_TIMEOUT))
    with database.read() as session:
        assert trials.failure_counts(session, lease.job_id) == {
            FailureKind.BUILD_ERROR: 3,
            FailureKind.RUN_TIMEOUT: 1,
        }
        groups = trials.failure_groups(session, lease.job_id)
    assert [(group.count, group.example, group.message) for group in groups] == [
        (2, 0, messages[0]),
        (1, 2, "other"),
        (1, 3, "late"),
    ]


def test_timings_of_a_drifting_worker_are_marked(database: Database, clock: ManualClock) -> None:
    lease = add_claimed(database)
    with database.write() as session:
        trials.record(session, lease, timed(0), worker="w1")
    clock.advance(10)
    with database.write() as session:
        trials.record(session, lease, timed(1), worker="w1")
        trials.record(session, lease, timed(2), worker="w2")
    with database.write() as session:
        assert trials.mark_suspect(session, "w1", clock() - timedelta(seconds=5), "drifted") == 1
        assert [stored.suspect for stored in trials.stored_of_task(session, lease.job_id)] == [
            None,
            "drifted",
            None,
        ]
