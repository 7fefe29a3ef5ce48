"""What the database promises, on SQLite and PostgreSQL alike: leases, fencing, trials recorded once, pages, promotion."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy.exc import DBAPIError

from db import artifacts, events, jobs, kernels, leases, targets, trial_pages, trials, workloads
from db.engine import Database, open_database
from db.errors import AlreadyRecorded, IdempotencyConflict, IllegalTransition, IncumbentChanged, LeaseHeld, NotFound, StaleLease
from db.trial_pages import TrialFilter
from tests.database_samples import (
    ManualClock,
    add_claimed,
    add_job,
    failed,
    queue_job,
    sample_kernel,
    sample_target,
    sample_workload,
    timed,
)
from tuner.errors import DatabaseError, UsageError
from tuner.measure.outcome import Failed, FailureKind, Trial
from tuner.spaces.space import Value


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Database]:
    url = f"sqlite:///{tmp_path}/tuner.sqlite" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))
    opened = open_database(url, clock=clock)
    yield opened
    opened.close()


def together(count: int, work: Callable[[int], None]) -> None:
    """Runs `work` in threads that start at once; raises what one of them raised."""
    barrier, errors = threading.Barrier(count), list[BaseException]()

    def run(index: int) -> None:
        barrier.wait(timeout=20)
        try:
            work(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


def test_a_failed_block_writes_nothing(database: Database) -> None:
    with pytest.raises(ZeroDivisionError), database.write() as session:
        queue_job(session)
        1 / 0  # noqa: B018 - the failure is the point
    with database.read() as session:
        assert jobs.list_page(session).items == ()


def test_reading_transactions_cannot_write(database: Database) -> None:
    with pytest.raises((DatabaseError, DBAPIError)), database.read() as session:
        queue_job(session)


def test_workloads_and_targets_come_back(database: Database) -> None:
    with database.write() as session:
        for _ in range(2):
            key = workloads.remember(session, sample_workload(), {"text": "…\x00", "n": [1, 2.5]})
            targets.remember(session, sample_target())
    with database.read() as session:
        assert workloads.get(session, key).document == {"text": "…\ufffd", "n": [1, 2.5]}
        assert targets.list_all(session) == (sample_target(),)
        with pytest.raises(NotFound, match="no workload"):
            workloads.get(session, "0" * 64)


def test_job_runs_through_its_states_with_events(database: Database) -> None:
    job_id = add_job(database, 8, 9)
    with database.write() as session:
        claimed = leases.claim_next(session, owner="a")
        assert claimed is not None
        job, lease = claimed
        assert (job.id, job.state, job.lease_owner) == (job_id, jobs.RUNNING, "a")
        assert leases.claim_next(session, owner="b") is None
        leases.note_task(session, lease, 1, state="succeeded", space_size=10**30, elapsed_s={"total": 2.5})
        done = leases.finish(session, lease, jobs.SUCCEEDED)
    assert (done.state, done.lease_owner, done.tasks[1].space_size, done.tasks[1].elapsed_s) == (
        "succeeded",
        None,
        10**30,
        {"total": 2.5},
    )
    assert done.finished_at is not None
    with database.read() as session:
        assert [event.kind for event in events.after(session, job_id, 0)] == ["queued", "running", "succeeded"]
        assert [event.sequence for event in events.after(session, job_id, 1)] == [2, 3]
        assert events.latest(session, [job_id]) == {job_id: 3}


def test_urgent_jobs_come_first_then_older_ones(database: Database, clock: ManualClock) -> None:
    ids = []
    for priority in (0, 5, 0, 5):
        ids.append(add_job(database, priority=priority))
        clock.advance(1)
    with database.write() as session:
        claimed = [leases.claim_next(session, owner="a") for _ in range(5)]
    assert [entry and entry[0].id for entry in claimed] == [ids[1], ids[3], ids[0], ids[2], None]


def test_claims_can_be_kept_to_targets(database: Database) -> None:
    add_job(database)
    with database.write() as session:
        assert leases.claim_next(session, owner="a", targets=["f" * 64]) is None
        assert leases.claim_next(session, owner="a", targets=[sample_target().key]) is not None


def test_concurrent_claims_never_share_a_job(database: Database) -> None:
    ids = {add_job(database) for _ in range(12)}
    claimed: list[str] = []

    def claim(index: int) -> None:
        while True:
            with database.write() as session:
                found = leases.claim_next(session, owner=f"o{index}")
            if found is None:
                return
            claimed.append(found[0].id)

    together(4, claim)
    assert sorted(claimed) == sorted(ids)


def test_stale_fencing_is_refused_everywhere(database: Database, clock: ManualClock) -> None:
    old = add_claimed(database)
    clock.advance(31)
    with database.write() as session:
        found = leases.claim_next(session, owner="second")
        assert found is not None and found[1].fence > old.fence
    new = found[1]
    writes: list[Callable[..., object]] = [
        lambda session: trials.record(session, old, timed(0)),
        lambda session: leases.renew(session, old),
        lambda session: leases.release(session, old),
        lambda session: leases.finish(session, old, jobs.SUCCEEDED),
        lambda session: leases.note_task(session, old, 0, state="failed"),
        lambda session: kernels.promote(session, sample_kernel(session), lease=old),
    ]
    for write in writes:
        with pytest.raises(StaleLease, match="held by second"), database.write() as session:
            write(session)
    with database.write() as session:
        trials.record(session, new, timed(0))
        leases.finish(session, new, jobs.SUCCEEDED)
    with pytest.raises(StaleLease, match="held by nobody"), database.write() as session:
        trials.record(session, new, timed(1))


def test_lease_that_ran_out_but_was_not_taken_still_writes(database: Database, clock: ManualClock) -> None:
    lease = add_claimed(database)
    clock.advance(3600)
    with database.write() as session:
        trials.record(session, lease, timed(0))
        renewed, cancelling = leases.renew(session, lease, lifetime=timedelta(seconds=60))
        assert renewed.expires_at == clock() + timedelta(seconds=60) and not cancelling


def test_claiming_a_held_job_names_its_holder(database: Database) -> None:
    lease = add_claimed(database)
    with pytest.raises(LeaseHeld, match="tuned by first until 2026-"), database.write() as session:
        leases.claim(session, lease.job_id, owner="second")
    with database.write() as session:
        job, taken = leases.claim(session, lease.job_id, owner="second", take_over=True)
    assert job.lease_owner == "second" and taken.fence > lease.fence


def test_cancel_and_resume(database: Database, clock: ManualClock) -> None:
    queued, lease = add_job(database), add_claimed(database)
    with database.write() as session:
        assert jobs.request_cancel(session, queued).state == jobs.CANCELLED
        assert jobs.request_cancel(session, lease.job_id).state == jobs.CANCELLING
        assert leases.renew(session, lease)[1]
        assert leases.release(session, lease).state == jobs.CANCELLED
        assert jobs.resume(session, lease.job_id, trials=99).trials == 99
        assert jobs.get(session, lease.job_id).state == jobs.QUEUED
        _, again = leases.claim(session, lease.job_id, owner="second")
        leases.finish(session, again, jobs.SUCCEEDED)
    for call in (jobs.resume, jobs.request_cancel):
        with pytest.raises(IllegalTransition, match="succeeded"), database.write() as session:
            call(session, lease.job_id)


def test_cancelling_job_of_a_dead_owner_is_settled(database: Database, clock: ManualClock) -> None:
    expired, known_dead = add_claimed(database), add_claimed(database)
    with database.write() as session:
        jobs.request_cancel(session, expired.job_id)
        assert leases.abandon(session, known_dead.job_id).state == jobs.QUEUED
    clock.advance(31)
    with database.write() as session:
        found = leases.claim_next(session, owner="second")
        assert found is not None and found[0].id == known_dead.job_id
        assert jobs.get(session, expired.job_id).state == jobs.CANCELLED


def test_failed_jobs_carry_their_error(database: Database) -> None:
    lease = add_claimed(database)
    with pytest.raises(IllegalTransition, match="needs error text"), database.write() as session:
        leases.finish(session, lease, jobs.FAILED)
    with database.write() as session:
        assert leases.finish(session, lease, jobs.FAILED, error="no\x00pe").error == "no\ufffdpe"


def test_jobs_are_listed_newest_first_under_inserts(database: Database, clock: ManualClock) -> None:
    ids = []
    for number in range(5):
        ids.append(add_job(database, 8 + number % 2, owner="k1" if number % 2 else None))
        clock.advance(1)
    with database.read() as session:
        first = jobs.list_page(session, limit=2)
    add_job(database)
    with database.read() as session:
        second = jobs.list_page(session, limit=2, cursor=first.next)
        third = jobs.list_page(session, limit=2, cursor=second.next)
        assert [job.id for page in (first, second, third) for job in page.items] == ids[::-1] and third.next is None
        assert [job.id for job in jobs.list_page(session, owner="k1").items] == [ids[3], ids[1]]
        assert len(jobs.list_page(session, workload=sample_workload(9).key).items) == 2
        assert jobs.list_page(session, state=["failed"]).items == ()
        assert jobs.count(session, owner="k1") == 2
        for bad in ("!", "WyJqb2JzIl0", "WyJraW5kIiwieCJd"):
            with pytest.raises(UsageError, match="cursor"):
                jobs.list_page(session, cursor=bad)
        with pytest.raises(UsageError, match="limit is 1 to 1000"):
            jobs.list_page(session, limit=0)


def test_idempotency(database: Database, clock: ManualClock) -> None:
    add_job(database)
    new = jobs.NewJob(workloads=(sample_workload().key,), target=sample_target().key, threads=1, trials=5)
    once = jobs.Idempotency(key="k", digest="d" * 64, owner="me")
    found: list[tuple[str, bool]] = []

    def post(_index: int) -> None:
        with database.write() as session:
            job, created = jobs.create(session, new, idempotency=once)
            found.append((job.id, created))

    together(4, post)
    assert len({job for job, _ in found}) == 1 and sum(created for _, created in found) == 1
    with pytest.raises(IdempotencyConflict, match="'k'"), database.write() as session:
        jobs.create(session, new, idempotency=jobs.Idempotency(key="k", digest="e" * 64, owner="me"))
    clock.advance(25 * 3600)
    with database.write() as session:
        assert jobs.create(session, new, idempotency=once)[1]


def test_trials_come_back_as_they_were(database: Database) -> None:
    lease = add_claimed(database, 8, 9)
    recorded = [timed(0), failed(1, "line 1\x00 \ud800 of 0x1f"), timed(2, 5e-4)]
    with database.write() as session:
        for trial in recorded:
            trials.record(session, lease, trial, position=1, round=3, predicted=0.25, worker="w1")
    cleaned = Trial(
        number=1, config=recorded[1].config, outcome=Failed(kind=FailureKind.BUILD_ERROR, message="line 1\ufffd ? of 0x1f")
    )
    with database.read() as session:
        assert trials.of_task(session, lease.job_id, 1) == (recorded[0], cleaned, recorded[2])
        assert trials.of_task(session, lease.job_id, 0) == ()
        stored = trials.get(session, lease.job_id, 2, 1)
        assert (stored.round, stored.predicted, stored.worker, stored.attempts) == (3, 0.25, "w1", 1)
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


def all_numbers(database: Database, job_id: str, **listing: object) -> list[int]:
    numbers, cursor = list[int](), None
    while True:
        with database.read() as session:
            page = trial_pages.list_page(session, job_id, cursor=cursor, limit=3, **listing)  # type: ignore[arg-type] # keywords pass through
        numbers += [stored.trial.number for stored in page.items]
        cursor = page.next
        if cursor is None:
            return numbers


def test_trials_are_listed_by_number_and_median(database: Database) -> None:
    lease = add_claimed(database)
    medians = {0: 5e-3, 2: 1e-3, 3: 1e-3, 5: 2e-3, 7: 9e-3}
    with database.write() as session:
        for number in range(8):
            trials.record(session, lease, timed(number, medians[number]) if number in medians else failed(number))
    job = lease.job_id
    assert all_numbers(database, job) == list(range(8))
    assert all_numbers(database, job, sort="-number") == list(range(8))[::-1]
    assert all_numbers(database, job, sort="median_s") == [2, 3, 5, 0, 7, 1, 4, 6]
    assert all_numbers(database, job, sort="-median_s") == [7, 0, 5, 3, 2, 1, 4, 6]
    assert all_numbers(database, job, where=TrialFilter(outcome=["failed"])) == [1, 4, 6]
    assert all_numbers(database, job, where=TrialFilter(outcome=["ok"], min_median_s=2e-3, max_median_s=5e-3)) == [0, 5]
    assert all_numbers(database, job, where=TrialFilter(knobs={"tile": (4, 8), "unroll": 2, "sketch": "tiles"})) == [
        0,
        2,
        3,
        5,
        7,
    ]
    assert all_numbers(database, job, where=TrialFilter(knobs={"tile": (8, 8)})) == [1, 4, 6]
    assert all_numbers(database, job, where=TrialFilter(knobs={"sketch": "none"})) == []
    with pytest.raises(UsageError, match="unknown outcome 'good'"):
        all_numbers(database, job, where=TrialFilter(outcome=["good"]))
    with pytest.raises(UsageError, match="unknown sort"):
        all_numbers(database, job, sort="age")


def test_trials_are_found_by_exact_values_of_knobs(database: Database) -> None:
    lease = add_claimed(database)
    configs: list[dict[str, Value]] = [
        {"sketch": "tiles", "tile": (4, 8), "unroll": 2},
        {"sketch": "tiles", "tile": (8, 4), "unroll": 2},
        {"sketch": "tiles", "tile": (4, 8, 8), "unroll": 20},
        {"sketch": "rows", "tile": (4, 8), "unroll": 2},
    ]
    with database.write() as session:
        for number, config in enumerate(configs):
            trials.record(session, lease, replace(timed(number, 1e-3 * (number + 1)), config=config))

    def found(sort: trial_pages.Sort, **knobs: Value) -> list[int]:
        with database.read() as session:
            page = trial_pages.list_page(session, lease.job_id, where=TrialFilter(knobs=knobs), sort=sort)
        return [each.trial.number for each in page.items]

    assert found("number", tile=(4, 8)) == [0, 3] and found("-median_s", tile=(4, 8)) == [3, 0]
    assert found("number", unroll=2, sketch="tiles") == [0, 1] and found("median_s", unroll=2, tile=(8, 4)) == [1]
    assert found("number", unroll=20) == [2] and found("number", tile=(8,)) == [] and found("number", pack=1) == []


def test_trial_cursors_are_stable_under_inserts(database: Database) -> None:
    lease = add_claimed(database)
    with database.write() as session:
        for number in range(4):
            trials.record(session, lease, timed(number, 1e-3 * (number + 1)))
    with database.read() as session:
        first = trial_pages.list_page(session, lease.job_id, sort="median_s", limit=2)
    with database.write() as session:
        trials.record(session, lease, timed(4, 1e-4))
    with database.read() as session:
        second = trial_pages.list_page(session, lease.job_id, sort="median_s", limit=2, cursor=first.next)
        assert [stored.trial.number for stored in (*first.items, *second.items)] == [0, 1, 2, 3]
        with pytest.raises(UsageError, match="cursor"):
            trial_pages.list_page(session, lease.job_id, sort="number", cursor=first.next)


def test_failures_are_grouped(database: Database) -> None:
    lease = add_claimed(database)
    messages = ["tile 4 at 0x12", "tile 8 at 0x99", "other"]
    with database.write() as session:
        for number, message in enumerate(messages):
            trials.record(session, lease, failed(number, message))
        trials.record(session, lease, failed(3, "late", FailureKind.RUN_TIMEOUT))
    with database.read() as session:
        assert trials.failure_counts(session, lease.job_id) == {FailureKind.BUILD_ERROR: 3, FailureKind.RUN_TIMEOUT: 1}
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
        assert [stored.suspect for stored in trials.stored_of_task(session, lease.job_id)] == [None, "drifted", None]


def test_promotion_supersedes_and_rolls_back(database: Database, clock: ManualClock) -> None:
    lease = add_claimed(database)
    with database.write() as session:
        first = kernels.promote(session, sample_kernel(session), lease=lease)
    clock.advance(1)
    with database.write() as session:
        second = kernels.promote(session, sample_kernel(session, median_s=5e-4, previous=first.id), lease=lease)
    with database.read() as session:
        found = kernels.find_promoted(session, first.workload, first.target, 1)
        assert found == second and found.config["tile"] == (4, 8) and found.ci95_s == (5e-4 * 0.9, 5e-4 * 1.1)
        assert kernels.schedule(session, second.id)["versions"] == {"tvm": "0.27"}
        assert [kernel.id for kernel in kernels.lineage(session, second.id)] == [second.id, first.id]
        assert kernels.get(session, first.id).state == kernels.SUPERSEDED
        assert jobs.get(session, lease.job_id).tasks[0].kernel == second.id
        assert artifacts.live(session) == {second.artifact}
        assert [event.data["kernel"] for event in events.after(session, lease.job_id, 2)] == [first.id, second.id]
        newest = kernels.list_page(session, state=(), limit=1)
        older = kernels.list_page(session, state=(), cursor=newest.next)
        assert [kernel.id for kernel in (*newest.items, *older.items)] == [second.id, first.id]
    with database.write() as session:
        restored = kernels.rollback(session, second.id)
        assert restored is not None and (restored.id, restored.state) == (first.id, kernels.PROMOTED)
    with pytest.raises(IllegalTransition, match="rolled back"), database.write() as session:
        kernels.rollback(session, second.id)
    with database.write() as session:
        assert kernels.rollback(session, first.id) is None
        assert kernels.find_promoted(session, first.workload, first.target, 1) is None


def test_only_one_of_concurrent_promotions_wins(database: Database) -> None:
    with database.write() as session:
        sample_kernel(session)
    outcomes: list[str] = []

    def promote(index: int) -> None:
        try:
            with database.write() as session:
                kernels.promote(session, sample_kernel(session, median_s=1e-3 * (index + 1)))
            outcomes.append("won")
        except IncumbentChanged:
            outcomes.append("changed")

    together(4, promote)
    assert sorted(outcomes) == ["changed", "changed", "changed", "won"]
    with database.read() as session:
        assert len(kernels.list_page(session, state=()).items) == 1


def test_stale_kernels_are_marked_until_validated(database: Database, clock: ManualClock) -> None:
    with database.write() as session:
        kernel = kernels.promote(session, sample_kernel(session))
        assert kernels.mark_stale(session, kernel.target, "TVM changed") == 1
        assert kernels.get(session, kernel.id).stale == "TVM changed"
        clock.advance(5)
    with database.write() as session:
        kernels.mark_validated(session, kernel.id)
        assert (kernels.get(session, kernel.id).stale, kernels.get(session, kernel.id).validated_at) == (None, clock())
        assert [found.id for found in kernels.neighbours(session, "copy", kernel.target, 1)] == [kernel.id]


def test_old_events_of_finished_jobs_are_dropped(database: Database, clock: ManualClock) -> None:
    running, done = add_claimed(database), add_claimed(database)
    with database.write() as session:
        leases.finish(session, done, jobs.SUCCEEDED)
    clock.advance(60)
    with database.write() as session:
        assert events.delete_before(session, clock()) == 3
        assert len(events.after(session, running.job_id, 0)) == 2
        assert events.latest(session, [done.job_id]) == {done.job_id: 3}


def test_odd_values_are_refused_not_crashed_on(database: Database) -> None:
    add_job(database)
    new = jobs.NewJob(workloads=(sample_workload().key,), target=sample_target().key, threads=1, trials=5)
    for name, value in (("threads", 0), ("trials", -1), ("priority", 2**31), ("seed", 2**63)):
        with pytest.raises(UsageError, match=f"{name} is {value}; it must be from"), database.write() as session:
            jobs.create(session, replace(new, **{name: value}))  # type: ignore[arg-type] # the name varies
    for key in ("", "k" * 201):
        with pytest.raises(UsageError, match="it has 1 to 200"), database.write() as session:
            jobs.create(session, new, idempotency=jobs.Idempotency(key=key, digest="d" * 64))
    with database.read() as session, pytest.raises(UsageError):
        trials.get(session, "j", 2**70)
    for odd in ("\x00", "\ud800", "j" * 10_000):
        with pytest.raises(UsageError), database.read() as session:  # NotFound is one too
            jobs.get(session, odd)
        with pytest.raises(UsageError), database.read() as session:
            kernels.get(session, odd)
    with database.read() as session:
        assert len(jobs.list_page(session).items) == 1
