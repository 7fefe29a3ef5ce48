"""What retention lets go and what it never touches, the same on both databases."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import delete

from tests.support.database_samples import LIBRARY, kernel_run, sample_kernel, sample_target
from tuner.app.jobs.retention import BATCH, RUNS, Keep, prune
from tuner.db import (
    artifacts,
    events,
    jobs,
    kernels,
    lanes,
    leases,
    promotions,
    retention,
    runs,
    targets,
    tasks,
    trials,
    workers,
    workloads,
)
from tuner.db.engine import Database, Session
from tuner.db.errors import NotFound
from tuner.db.jobs import NewJob
from tuner.db.tables import RunRow
from tuner.export.artifacts import ArtifactError, ArtifactStore
from tuner.measure.outcome import Conditions, Timed, Trial
from tuner.workload.spec import to_document, workload_from_params

START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
CONDITIONS = Conditions(lane="cpu:1", isolation="none")
DIGEST = "ab" * 32
LIFETIME = timedelta(days=99)  # of a run's lease


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Store(ArtifactStore):
    """A store whose files are as old as the test's clock says."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        super().__init__(directory)
        self.clock = clock

    def put(self, data: bytes) -> str:
        digest = super().put(data)
        os.utime(self.path(digest), (self.clock.now.timestamp(),) * 2)
        return digest


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Store:
    return Store(tmp_path / "artifacts", clock)


def job(
    database: Database,
    count: int,
    *,
    state: str | None = "succeeded",
    kernel: int | None = None,
    extent: int = 16,
) -> str:
    """A job with `count` trials and as many events beside those of its states; `kernel`
    is the number of the trial that won."""
    workload = workload_from_params("matmul", {"M": extent, "N": 8, "K": 4})
    with database.write() as session:
        target = targets.remember(session, sample_target())
        key = workloads.remember(session, workload, to_document(workload))
        made, _ = jobs.create(
            session, NewJob(workloads=(key,), target=target, threads=1, trials=count)
        )
        _, lease = leases.claim(session, made.id, owner="test")
        for number in range(count):
            outcome = Timed(
                samples_s=(1e-3,),
                max_rel_error=0.0,
                conditions=CONDITIONS,
                artifact=f"{number:064x}",
            )
            trials.record(session, lease, Trial(number=number, config={}, outcome=outcome))
            events.append(session, made.id, "trial", {"number": number})
        if kernel is not None:
            artifacts.remember(session, sha256=DIGEST, size_bytes=1, kind="library")
            sample = sample_kernel(session)
            names = (
                "config",
                "median_s",
                "ci95_s",
                "gflops",
                "roofline_fraction",
                "max_rel_error",
                "verified",
            )
            new = promotions.NewKernel(
                workload=key, target=target, threads=1, artifact=DIGEST, schedule={},
                default_median_s=None, versions={},
                trial=kernel, **{name: getattr(sample, name) for name in names},
            )  # fmt: skip
            promotions.promote(session, new, lease=lease)
        if state is not None:
            leases.finish(session, lease, state, error="it broke" if state == "failed" else None)
    return made.id


def left(database: Database, job_id: str) -> tuple[list[int], int]:
    """Numbers of the trials and count of the events that are still there."""
    with database.read() as session:
        return sorted(trials.numbers(session, job_id)), len(
            events.after(session, job_id, 0, limit=100_000)
        )


def test_what_ended_long_ago_goes_and_the_job_and_its_kernel_stay(
    database: Database, clock: Clock, store: Store
) -> None:
    old = job(database, 5, kernel=3)
    clock.now += timedelta(days=10)
    fresh = job(database, 2, extent=17)
    with database.read() as session:
        before = jobs.get(session, old)
    pruned = prune(database, Keep(days=7), store)
    assert (pruned.jobs, pruned.trials, pruned.events) == (
        1,
        4,
        9,
    )  # queued, running, five trials, kernel, succeeded
    assert left(database, old) == ([3], 0) and left(database, fresh) == ([0, 1], 5)
    with database.read() as session:
        assert jobs.get(session, old) == before
        (kernel,) = kernels.list_page(session).items
        assert trials.get(session, old, kernel.trial or 0).trial.number == 3
    assert prune(database, Keep(days=7), store).jobs == 0


def test_a_job_that_goes_on_loses_nothing(database: Database, clock: Clock, store: Store) -> None:
    running = job(database, 3, state=None)
    clock.now += timedelta(days=100)
    assert prune(database, Keep(days=1, trials=1, events=1), store).jobs == 0
    assert left(database, running)[0] == [0, 1, 2]


@pytest.mark.parametrize("state", ["cancelled", "failed"])
def test_a_job_that_may_be_resumed_keeps_all_or_nothing(
    database: Database, clock: Clock, store: Store, state: str
) -> None:
    plain, winner = (
        job(database, 3, state=state),
        job(database, 3, state=state, kernel=1, extent=17),
    )
    clock.now += timedelta(days=2)
    assert prune(database, Keep(days=1), store).trials == 3
    assert left(database, plain)[0] == [] and left(database, winner)[0] == [0, 1, 2]
    with database.write() as session:
        assert jobs.resume(session, plain).state == "queued"
        _, lease = leases.claim(session, plain, owner="test")
        outcome = Timed(
            samples_s=(1e-3,), max_rel_error=0.0, conditions=CONDITIONS, artifact="0" * 64
        )
        trials.record(session, lease, Trial(number=0, config={}, outcome=outcome))


def test_by_number_the_newest_jobs_keep_theirs(
    database: Database, clock: Clock, store: Store
) -> None:
    job_ids = []
    for place in range(3):
        job_ids.append(job(database, 4, extent=16 + place))
        clock.now += timedelta(seconds=1)
    first, second, third = job_ids
    pruned = prune(database, Keep(trials=9), store)
    assert (pruned.jobs, pruned.trials, pruned.events) == (1, 4, 0)
    assert [len(left(database, job_id)[0]) for job_id in (first, second, third)] == [0, 4, 4]
    assert prune(database, Keep(events=7), store).events == 14
    assert [left(database, job_id)[1] for job_id in (first, second, third)] == [0, 0, 7]


@pytest.mark.slow
def test_many_go_in_small_transactions(database: Database, clock: Clock, store: Store) -> None:
    large = job(database, 2 * BATCH + 5, kernel=7)
    clock.now += timedelta(days=2)
    pruned = prune(database, Keep(days=1), store)
    assert (pruned.trials, pruned.events) == (2 * BATCH + 4, 2 * BATCH + 9)
    assert left(database, large) == ([7], 0)


def submitted(session: Session, digest: str) -> str:
    """A run of the sample kernel on bytes that the store has."""
    artifacts.remember(session, sha256=digest, size_bytes=1, kind="input")
    page = kernels.list_page(session).items
    kernel = page[0] if page else promotions.promote(session, sample_kernel(session))
    return runs.submit(session, of=kernel_run(kernel), input_artifact=digest).id


def run(database: Database, store: Store, given: bytes, output: bytes | None = None) -> str:
    """A run that ended: with `output`, or failed."""
    digest = store.put(given)
    with database.write() as session:
        made = submitted(session, digest)
        claimed = runs.claim_next(session, owner="test", lifetime=LIFETIME)
        assert claimed is not None and claimed.id == made
        if output is None:
            runs.finish(session, made, claimed.fence, error="it broke")
        else:
            result = artifacts.remember(
                session, sha256=store.put(output), size_bytes=1, kind="output"
            )
            runs.finish(session, made, claimed.fence, output=result)
    return made


def arrays(database: Database, store: Store) -> tuple[set[bytes], set[bytes]]:
    """What is remembered as inputs and outputs with its file, and what the store has."""
    files = {digest: store.get(digest) for digest in store.digests()}
    digests = set()
    with database.read() as session:
        for digest, data in files.items():
            try:
                artifacts.get(session, digest)
            except NotFound:
                continue
            digests.add(data)
    return digests, set(files.values())


def is_known(database: Database, run_id: str) -> bool:
    with database.read() as session:
        try:
            return runs.get(session, run_id).id == run_id
        except NotFound:
            return False


def test_runs_that_finished_long_ago_go_with_what_no_other_run_has(
    database: Database, clock: Clock, store: Store
) -> None:
    done, broken = run(database, store, b"both", b"one"), run(database, store, b"broken")
    with database.write() as session:
        waiting = submitted(session, store.put(b"waits"))
    clock.now += timedelta(days=5)
    with database.write() as session:
        assert (
            runs.claim_next(session, owner="test", lifetime=LIFETIME) is not None
        )  # it takes its time
    fresh = run(database, store, b"both", b"two")
    clock.now += timedelta(days=5)
    store.put(b"another database's")
    assert prune(database, Keep(trials=1, events=1), store).runs == 0
    assert prune(database, Keep(days=7), store).runs == 2
    assert [is_known(database, digest) for digest in (done, broken, waiting, fresh)] == [
        False,
        False,
        True,
        True,
    ]
    kept = {b"both", b"two", b"waits"}
    assert arrays(database, store) == (kept, kept | {b"another database's"})
    clock.now += timedelta(days=5)
    assert prune(database, Keep(days=7), store).runs == 1
    assert arrays(database, store) == ({b"waits"}, {b"waits", b"another database's"})


def test_only_inputs_and_outputs_go(database: Database, clock: Clock, store: Store) -> None:
    """Bytes that are also something else are kept, whichever they were first."""
    with database.write() as session:
        artifacts.remember(session, sha256=store.put(b"model"), size_bytes=1, kind="model")
    for data in (b"model", b"export"):
        run(database, store, data, b"output of " + data)
    with database.write() as session:
        digest = artifacts.remember(
            session, sha256=store.put(b"export"), size_bytes=1, kind="export", signature="c2ln"
        )
        assert (artifacts.get(session, digest).kind, artifacts.get(session, digest).signature) == (
            "export",
            "c2ln",
        )
        assert kernels.list_page(session).items[0].artifact == LIBRARY
    clock.now += timedelta(days=2)
    assert prune(database, Keep(days=1), store).runs == 2
    assert arrays(database, store) == ({b"model", b"export"}, {b"model", b"export"})
    with database.read() as session:
        assert artifacts.get(session, LIBRARY).kind == "library"


def test_an_input_that_is_about_to_be_referred_to_is_waited_for(
    database: Database, clock: Clock, store: Store
) -> None:
    old = [run(database, store, data) for data in (b"again", b"other")]
    clock.now += timedelta(days=2)
    digest = store.put(b"again")
    with ThreadPoolExecutor(1) as beside:
        with database.write() as session:
            artifacts.remember(session, sha256=digest, size_bytes=1, kind="input")
            (kernel,) = kernels.list_page(session).items
            pruning = beside.submit(prune, database, Keep(days=1), store)
            threading.Event().wait(0.5)
            new = runs.submit(session, of=kernel_run(kernel), input_artifact=digest).id
        assert pruning.result(timeout=30).runs == 2
    assert arrays(database, store) == ({b"again"}, {b"again"})
    assert [is_known(database, digest) for digest in (*old, new)] == [False, False, True]


def test_an_input_that_is_being_forgotten_is_remembered_anew(
    database: Database, clock: Clock, store: Store
) -> None:
    run(database, store, b"again")
    clock.now += timedelta(days=2)
    before, digest = clock.now - timedelta(days=1), store.put(b"again")

    def submit() -> str:
        with database.write() as session:
            return submitted(session, digest)

    with ThreadPoolExecutor(1) as beside:
        with database.write() as session:
            assert retention.drop_runs(session, before, BATCH) == (1, (digest,))
            submitting = beside.submit(submit)
            threading.Event().wait(0.5)
        assert is_known(database, submitting.result(timeout=30))
    store.delete([digest], before=before)
    assert arrays(database, store) == ({b"again"}, {b"again"})


def test_what_is_put_between_the_row_and_the_file_stays(
    database: Database, clock: Clock, store: Store
) -> None:
    class Overtaken(Store):
        def delete(self, digests: Iterable[str], *, before: datetime) -> None:
            with database.write() as session:
                submitted(session, store.put(b"again"))
            super().delete(digests, before=before)

    run(database, store, b"again", b"output")
    clock.now += timedelta(days=2)
    assert prune(database, Keep(days=1), Overtaken(store.directory, clock)).runs == 1
    assert arrays(database, store) == ({b"again"}, {b"again"})


def test_files_go_after_the_commit(database: Database, clock: Clock, store: Store) -> None:
    class Broken(Store):
        def delete(self, digests: Iterable[str], *, before: datetime) -> None:
            assert arrays(database, store) == (set(), {b"input", b"output"})
            raise ArtifactError("no such disk")

    made = run(database, store, b"input", b"output")
    clock.now += timedelta(days=2)
    with pytest.raises(ArtifactError):
        prune(database, Keep(days=1), Broken(store.directory, clock))
    assert not is_known(database, made)
    assert prune(database, Keep(days=1), store).runs == 0


def test_two_that_prune_at_once_leave_no_row_behind(
    database: Database, clock: Clock, store: Store
) -> None:
    """Each sees the other's run until that is committed; whoever comes second waits for
    it and forgets what they shared."""
    _, second = (run(database, store, b"shared", b"result") for _ in range(2))
    clock.now += timedelta(days=2)

    def other() -> tuple[str, ...]:
        with database.write() as session:
            session.execute(delete(RunRow).where(RunRow.id == second))
            return artifacts.forget_unused(session, list(store.digests()))

    with ThreadPoolExecutor(1) as beside:
        with database.write() as session:
            assert retention.drop_runs(session, clock.now - timedelta(days=1), 1) == (1, ())
            forgetting = beside.submit(other)
            threading.Event().wait(0.5)
        assert sorted(forgetting.result(timeout=30)) == sorted(store.digests())


def add_spans(database: Database, clock: Clock, count: int) -> None:
    with database.write() as session:
        target = targets.remember(session, sample_target())
        worker = workers.NewWorker(
            id="w1", host="machine", target=target, isolation="none", lanes=(), versions={}
        )
        workers.join(session, worker)
        ended = clock.now + timedelta(seconds=1)
        span = lanes.LaneSpan(
            worker="w1", lane="cpu:1", kind="time", started_at=clock.now, ended_at=ended
        )
        lanes.add_spans(session, [span] * count)


def test_spans_that_began_long_ago_go(database: Database, clock: Clock, store: Store) -> None:
    add_spans(database, clock, 3)
    clock.now += timedelta(days=10)
    add_spans(database, clock, 2)
    assert prune(database, Keep(trials=1, events=1), store).spans == 0
    assert prune(database, Keep(days=7), store).spans == 3
    with database.read() as session:
        assert len(lanes.timeline(session, since=START, until=clock.now + timedelta(days=1))) == 2


@pytest.mark.slow
def test_many_runs_and_spans_go_in_small_transactions(
    database: Database, clock: Clock, store: Store
) -> None:
    for number in range(RUNS + 5):
        run(database, store, b"input", f"{number}".encode())
    add_spans(database, clock, 2 * BATCH + 5)
    clock.now += timedelta(days=2)
    pruned = prune(database, Keep(days=1), store)
    assert (pruned.runs, pruned.spans) == (RUNS + 5, 2 * BATCH + 5)
    assert arrays(database, store) == (set(), set())


def judged(
    database: Database, store: Store, source: bytes, *, extent: int = 16, end: bool = True
) -> str:
    """The digest of a source that a job of a foreign kernel has."""
    workload = workload_from_params("matmul", {"M": extent, "N": 8, "K": 4})
    digest = store.put(source)
    with database.write() as session:
        target = targets.remember(session, sample_target())
        key = workloads.remember(session, workload, to_document(workload))
        artifacts.remember(session, sha256=digest, size_bytes=len(source), kind="source")
        new = NewJob(
            workloads=(key,), target=target, threads=1, trials=1, kind=jobs.JUDGE,
            settings={tasks.SOURCE: digest},
        )  # fmt: skip
        made, _ = jobs.create(session, new)
        if end:
            _, lease = leases.claim(session, made.id, owner="test")
            leases.finish(session, lease, "succeeded")
    return digest


def test_sources_go_with_the_age_of_their_last_job(
    database: Database, store: Store, clock: Clock
) -> None:
    old = judged(database, store, b"int old;")
    shared = judged(database, store, b"int shared;")
    queued = judged(database, store, b"int queued;", end=False)
    clock.now += timedelta(days=5)
    judged(database, store, b"int shared;", extent=24)
    young = judged(database, store, b"int young;")
    pruned = prune(database, Keep(days=3), store)
    assert pruned.sources == 1 and not store.exists(old)
    assert all(store.exists(digest) for digest in (shared, queued, young))
    with database.read() as session, pytest.raises(NotFound):
        artifacts.get(session, old)
    clock.now += timedelta(days=5)
    assert prune(database, Keep(days=3), store).sources == 2
    assert store.exists(queued) and prune(database, Keep(days=3), store).sources == 0
