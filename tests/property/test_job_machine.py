"""Any order of claims, renewals, results, cancellations, resumptions, crashes and
passing time keeps a job sound.

The model knows each job's state, who holds it, and which trials were acknowledged; the
database must agree after every step.
"""

from __future__ import annotations

import tempfile
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import text

from tests.support.database_samples import ManualClock, add_job, failed, timed
from tuner.db import events, jobs, leases, trials
from tuner.db.engine import open_database
from tuner.db.errors import AlreadyRecorded, IllegalTransition, StaleLease
from tuner.db.leases import Lease

LEASE_S = 30
MEMORY = "/dev/shm"  # this test is about states, not about disks


def over(lease: Lease, now: datetime) -> bool:
    """Run out, or given before the clock was set back."""
    return lease.expires_at <= now or lease.expires_at > now + leases.LONGEST_LEASE


class JobMachine(RuleBasedStateMachine):
    """On SQLite; see PostgresJobMachine."""

    held = Bundle("held")
    queued = Bundle("queued")

    @initialize()
    def open(self) -> None:
        self.clock, self.url = ManualClock(), self.make()
        self.database = open_database(self.url, clock=self.clock)
        self.states: dict[str, str] = {}
        self.holders: dict[str, Lease] = {}  # the lease that may write
        self.recorded: dict[str, set[int]] = {}

    def teardown(self) -> None:
        if hasattr(self, "database"):
            self.database.close()
            self.drop()

    def make(self) -> str:
        """The address of an empty database."""
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY if Path(MEMORY).is_dir() else None)
        return f"sqlite:///{self.folder.name}/tuner.sqlite"

    def drop(self) -> None:
        self.folder.cleanup()

    @rule(target=queued, priority=st.integers(0, 3))
    def submit(self, priority: int) -> str:
        job = add_job(self.database, priority=priority)
        self.states[job], self.recorded[job] = jobs.QUEUED, set()
        return job

    @rule(target=held)
    def claim(self) -> object:
        now = self.clock()
        for job, lease in list(self.holders.items()):
            if self.states[job] == jobs.CANCELLING and over(lease, now):
                self.states[job] = jobs.CANCELLED
                del self.holders[job]
        with self.database.write() as session:
            claim = leases.claim_next(session, owner="someone", lifetime=timedelta(seconds=LEASE_S))
        free = {
            job
            for job, state in self.states.items()
            if state == jobs.QUEUED or (state == jobs.RUNNING and over(self.holders[job], now))
        }
        if claim is None:
            assert not free
            return multiple()
        claimed, lease = claim
        assert claimed.id in free and (
            claimed.id not in self.holders or lease.fence > self.holders[claimed.id].fence
        )
        self.states[claimed.id], self.holders[claimed.id] = jobs.RUNNING, lease
        return lease

    @rule(lease=held, number=st.integers(0, 5), good=st.booleans())
    def record(self, lease: Lease, number: int, good: bool) -> None:
        try:
            with self.database.write() as session:
                trials.record(session, lease, timed(number) if good else failed(number))
        except StaleLease:
            assert not self.current(lease)
        except AlreadyRecorded:
            assert self.current(lease) and number in self.recorded[lease.job_id]
        else:
            assert self.current(lease) and number not in self.recorded[lease.job_id]
            self.recorded[lease.job_id].add(number)

    @rule(target=held, lease=consumes(held))
    def renew(self, lease: Lease) -> Lease:
        try:
            with self.database.write() as session:
                renewed, cancelling = leases.renew(
                    session, lease, lifetime=timedelta(seconds=LEASE_S)
                )
        except StaleLease:
            assert not self.current(lease)
            return lease
        assert self.current(lease) and cancelling == (self.states[lease.job_id] == jobs.CANCELLING)
        self.holders[lease.job_id] = renewed
        return renewed

    @rule(
        lease=held,
        state=st.sampled_from([jobs.SUCCEEDED, jobs.FAILED, jobs.CANCELLED, jobs.QUEUED]),
    )
    def end(self, lease: Lease, state: str) -> None:
        try:
            with self.database.write() as session:
                if state == jobs.QUEUED:
                    after = leases.release(session, lease).state
                else:
                    after = leases.finish(
                        session, lease, state, error="it broke" if state == jobs.FAILED else None
                    ).state
        except StaleLease:
            assert not self.current(lease)
            return
        assert self.current(lease)
        released = jobs.CANCELLED if self.states[lease.job_id] == jobs.CANCELLING else jobs.QUEUED
        assert after == (released if state == jobs.QUEUED else state)
        self.states[lease.job_id] = after
        del self.holders[lease.job_id]

    @rule(job=queued)
    def cancel(self, job: str) -> None:
        before = self.states[job]
        try:
            with self.database.write() as session:
                after = jobs.request_cancel(session, job).state
        except IllegalTransition:
            assert before in (jobs.SUCCEEDED, jobs.FAILED)
            return
        expected = {jobs.QUEUED: jobs.CANCELLED, jobs.RUNNING: jobs.CANCELLING}
        assert after == expected.get(before, before)
        self.states[job] = after

    @rule(job=queued)
    def resume(self, job: str) -> None:
        before = self.states[job]
        try:
            with self.database.write() as session:
                jobs.resume(session, job)
        except IllegalTransition:
            assert before in (jobs.RUNNING, jobs.CANCELLING, jobs.SUCCEEDED)
            return
        assert before in (jobs.QUEUED, jobs.CANCELLED, jobs.FAILED)
        self.states[job] = jobs.QUEUED

    @rule(seconds=st.sampled_from([1, 29, 31, 3600, -3600]))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule()
    def restart(self) -> None:
        self.database.close()
        self.database = open_database(self.url, clock=self.clock)

    @invariant()
    def database_agrees(self) -> None:
        if not hasattr(self, "database"):
            return
        with self.database.read() as session:
            for job_id, state in self.states.items():
                job = jobs.get(session, job_id)
                assert job.state == state
                assert (job.lease_owner is not None) == (state in (jobs.RUNNING, jobs.CANCELLING))
                assert trials.numbers(session, job_id) == self.recorded[job_id]
                assert job.tasks[0].trials_done == len(self.recorded[job_id])
                log = events.after(session, job_id, 0)
                assert [event.sequence for event in log] == list(range(1, len(log) + 1)) and log[
                    -1
                ].kind == state

    def current(self, lease: Lease) -> bool:
        holder = self.holders.get(lease.job_id)
        return holder is not None and holder.fence == lease.fence


class PostgresJobMachine(JobMachine):
    """The same on PostgreSQL: one database, emptied for each example."""

    server_url = ""

    def make(self) -> str:
        opened = open_database(self.server_url)
        with opened.write() as session:
            session.execute(text("TRUNCATE jobs, workloads, targets CASCADE"))
        opened.close()
        return self.server_url

    def drop(self) -> None:
        pass


SMALL = settings(
    max_examples=20,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestJobMachine = JobMachine.TestCase
TestJobMachine.settings = SMALL


@pytest.mark.slow
@pytest.mark.postgres
def test_the_same_on_postgresql(postgres_url: str) -> None:
    machine = type("Machine", (PostgresJobMachine,), {"server_url": postgres_url})
    run_state_machine_as_test(machine, settings=settings(SMALL, max_examples=10))
