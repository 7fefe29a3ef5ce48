"""Races of served kernels, the same on both databases: due, kept, judged, announced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from sqlalchemy import update

from tests.support.database_samples import ManualClock
from tests.support.kernel_samples import many_kernels
from tests.support.rerace_simulation import Simulation
from tuner.db import jobs, kernels, leases, promotions, races
from tuner.db.engine import Database, Session
from tuner.db.errors import StaleLease
from tuner.db.races import BASE_AFTER, CONFIRM_AFTER
from tuner.db.tables import KernelRow
from tuner.measure.regression import CONFIRMATIONS, Contest, RaceRecord, State
from tuner.measure.statistics import Ratio
from tuner.workers.fleet.messages import RaceOutcome, Ranked
from tuner.workers.jobs import reracing
from tuner.workers.jobs.contest import INCUMBENT
from tuner.workers.jobs.revalidation import TASKS

EVERY = timedelta(days=30)
LIBRARIES = {"numpy": "2.4", "default": "0.25"}


def race(median_s: float = 1e-3, ratio: float = 2.0, *, width: float = 0.01) -> RaceRecord:
    def around(value: float) -> tuple[float, float]:
        return value * (1 - width), value * (1 + width)

    contests = tuple(
        Contest(
            contender=name,
            version=version,
            median_s=2e-3,
            ci95_s=(1.99e-3, 2.01e-3),
            ratio=Ratio(value=ratio, ci95=around(ratio)),
        )
        for name, version in LIBRARIES.items()
    )
    return RaceRecord(median_s=median_s, ci95_s=around(median_s), contests=contests)


@pytest.fixture
def clocked(database: Database) -> tuple[Database, ManualClock]:
    clock = ManualClock()
    return replace(database, clock=clock), clock


def recorded(
    database: Database, clock: ManualClock, kernel: str, some: Sequence[RaceRecord | str]
) -> list[tuple[str, str]]:
    """Kind and state of what each race, a day after the one before, changed."""
    changed = []
    for record in some:
        clock.advance(86_400)
        with database.write() as session:
            made = races.record(session, kernel, record, LIBRARIES)
        changed += [(each.kind, each.state) for each in made]
    return changed


def test_a_loss_is_raised_once_it_is_confirmed_and_resolved_when_it_is_over(
    clocked: tuple[Database, ManualClock],
) -> None:
    database, clock = clocked
    (kernel,) = many_kernels(database, 1)
    slow = race(1.2e-3, 1.6)
    assert recorded(database, clock, kernel, [race()] * 3) == []
    assert recorded(database, clock, kernel, [slow, race()]) == [
        ("slower", "suspected"),
        ("slower", "dismissed"),
    ]
    raised = recorded(database, clock, kernel, [slow] * (CONFIRMATIONS + 1))
    states = [*["suspected"] * CONFIRMATIONS, "raised"]
    assert raised == [("slower", state) for state in states]
    with database.read() as session:
        assert races.regressed(session, [kernel]) == {kernel}
        (alarm,) = races.unannounced(session)
        assert alarm.state == State.RAISED and alarm.factor == pytest.approx(1.2)
    with database.write() as session:
        races.note_announced(session, alarm)
        assert races.unannounced(session) == ()
    ended = recorded(database, clock, kernel, [race()] * (CONFIRMATIONS + 1))
    states = [*["raised"] * CONFIRMATIONS, "resolved"]
    assert ended == [("slower", state) for state in states]
    with database.read() as session:
        assert [each.state for each in races.unannounced(session)] == [State.RESOLVED]
        assert races.regressed(session, [kernel]) == frozenset()
        every = races.list_regressions(session, state=(), limit=1)
        assert every.next is not None and every.items[0].ended_at == clock.time
        assert len(races.series(session, kernel)) == 5 + 2 * (CONFIRMATIONS + 1)


def test_a_machine_that_is_slower_as_a_whole_is_no_loss(
    clocked: tuple[Database, ManualClock],
) -> None:
    database, clock = clocked
    (kernel,) = many_kernels(database, 1)
    assert recorded(database, clock, kernel, [race()] * 3 + [race(1.3e-3)] * 4) == []


def test_a_kernel_that_crashes_is_raised_too(clocked: tuple[Database, ManualClock]) -> None:
    database, clock = clocked
    (kernel,) = many_kernels(database, 1)
    changed = recorded(database, clock, kernel, [race(), *["run_crash: signal 4"] * 4])
    assert changed[-1] == ("failed", "raised")
    with database.read() as session:
        assert races.series(session, kernel)[-1].error == "run_crash: signal 4"


def test_what_replaces_a_kernel_ends_its_alarms(clocked: tuple[Database, ManualClock]) -> None:
    database, clock = clocked
    (kernel,) = many_kernels(database, 1)
    recorded(database, clock, kernel, ["run_crash"] * 4)
    with database.write() as session:
        promotions.rollback(session, kernel)
        assert races.regressed(session, [kernel]) == frozenset()


def test_due_are_the_suspected_then_the_new_then_the_oldest(
    clocked: tuple[Database, ManualClock],
) -> None:
    database, clock = clocked
    first, second, third = many_kernels(database, 3)

    def due(libraries: dict[str, str] = LIBRARIES) -> list[str]:
        with database.read() as session:
            target = kernels.get(session, first).target
            some = races.due(session, target, every=EVERY, libraries=libraries)
        return [each.kernel for each in some]

    assert due() == [first, second, third]
    recorded(database, clock, second, [race()])
    assert due() == [first, third]
    clock.advance(BASE_AFTER.total_seconds())
    assert due() == [first, third, second]
    recorded(database, clock, second, [race()] * 3)
    clock.advance(BASE_AFTER.total_seconds())
    assert due() == [first, third] and due({**LIBRARIES, "numpy": "3"})[-1] == second
    recorded(database, clock, second, ["run_crash"])
    assert due() == [first, third]
    clock.advance(CONFIRM_AFTER.total_seconds())
    assert due() == [second, first, third]
    with database.write() as session:
        kernels.mark_stale(session, kernels.get(session, first).target, "apache-tvm was 1, is 2")
    assert due() == []


def test_an_undisturbed_race_takes_the_place_of_a_disturbed_time(
    clocked: tuple[Database, ManualClock],
) -> None:
    database, clock = clocked
    (kernel,) = many_kernels(database, 1)
    with database.write() as session:
        session.execute(update(KernelRow).values(median_s=3e-3, ci95_high_s=4e-3, gflops=1.0))
        target = kernels.get(session, kernel).target

    def now() -> tuple[float, float, float | None]:
        with database.read() as session:
            stored = kernels.get(session, kernel)
        return stored.median_s, stored.gflops, stored.default_median_s

    before = now()
    recorded(database, clock, kernel, [race(width=0.1)] * 4)
    assert now() == before
    clock.advance(BASE_AFTER.total_seconds())
    with database.read() as session:  # it has a base, and is due daily all the same
        (due,) = races.due(session, target, every=EVERY, libraries=LIBRARIES)
    assert due.kernel == kernel
    recorded(database, clock, kernel, [race(1.5e-3)])
    assert now() == pytest.approx((1.5e-3, 2.0, 2e-3))
    recorded(database, clock, kernel, [race(1.4e-3)])
    assert now()[0] == 1.5e-3
    clock.advance(BASE_AFTER.total_seconds())
    with database.read() as session:
        assert not races.due(session, target, every=EVERY, libraries=LIBRARIES)


def test_a_job_at_a_time_races_what_is_due(clocked: tuple[Database, ManualClock]) -> None:
    database, _ = clocked
    ids = many_kernels(database, TASKS + 1)
    with database.write() as session:
        target = kernels.get(session, ids[0]).target
        made = reracing.queue(session, target, EVERY)
        assert made is not None and reracing.queue(session, target, EVERY) is None
        job = jobs.get(session, made)
        assert (job.kind, len(job.tasks), job.owner) == (jobs.RERACE, TASKS, None)
        _, lease = leases.claim(session, made, owner="test")
        leases.finish(session, lease, jobs.SUCCEEDED)
        again = reracing.queue(session, target, EVERY)
        assert again is not None and again != made


def simulated(database: Database, clock: ManualClock, count: int, each: int, days: int) -> None:
    """Races `count` kernels as they fall due; the alarms must be those of the planted losses."""
    ids = many_kernels(database, count)
    simulation = Simulation(rng=np.random.default_rng(7), start=clock.time)
    planted = simulation.plant(ids, each)
    with database.read() as session:
        target = kernels.get(session, ids[0]).target
    end = clock.time + timedelta(days=days)
    while clock.time < end:
        installed = simulation.libraries(clock.time)
        with database.read() as session:
            due = races.due(session, target, every=EVERY, libraries=installed)
        for start in range(0, len(due), 500):
            with database.write() as session:
                for one_due in due[start : start + 500]:
                    record = simulation.race(one_due.kernel, clock.time)
                    races.record(session, one_due.kernel, record, installed)
        clock.advance(6 * 3600)
    raised: set[tuple[str, str]] = set()
    with database.read() as session:
        cursor = None
        while True:
            page = races.list_regressions(
                session, state=("raised", "resolved"), cursor=cursor, limit=1000
            )
            raised |= {(alarm.kernel, alarm.kind) for alarm in page.items}
            cursor = page.next
            if cursor is None:
                break
    assert raised == planted


@pytest.mark.slow
def test_alarms_are_the_planted_losses_of_a_hundred_kernels(
    clocked: tuple[Database, ManualClock],
) -> None:
    simulated(*clocked, count=100, each=4, days=70)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_alarms_are_the_planted_losses_of_ten_thousand_kernels(
    clocked: tuple[Database, ManualClock],
) -> None:
    simulated(*clocked, count=10_000, each=40, days=130)


def test_a_race_is_recorded_with_the_end_of_its_task_or_not_at_all(database: Database) -> None:
    (kernel,) = many_kernels(database, 1)
    ranked = Ranked(
        name=INCUMBENT, median_s=1e-3, ci95_s=(0.9e-3, 1.1e-3), max_rel_error=0.0, samples=9
    )
    outcome = RaceOutcome(finalists=(ranked,), winner=None, reason="")

    def lost(session: Session, raced: str) -> None:
        raise StaleLease("another orchestrator has the job")

    with pytest.raises(StaleLease):
        reracing.keep(database, kernel, outcome, None, 0, lost)
    with database.read() as session:
        assert races.series(session, kernel) == ()
