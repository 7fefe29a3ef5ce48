"""Clients of a service that is killed again and again, and what was acknowledged to them."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import func, select

from tuner.app.machine import with_limits
from tuner.db import jobs, keys, schema, targets, workloads
from tuner.db.engine import Database
from tuner.db.tables import EventRow, JobRow, TaskRow, TrialRow
from tuner.target.detect import detect_cpu
from tuner.workload.spec import parse_spec, to_document

SUBMITTED, CANCELLED = "submitted", "cancelled"
# ragged, so that no trial reaches the roofline, which would end the job
WORK = "matmul:M=61,N=67,K=71"
WORK_TRIALS = 1_000_000
URGENT = 100
# What clients submit; it waits behind the urgent job.
SMALL = {"op": "softmax", "params": {"M": 9, "N": 21}}
PAUSE_S = 0.1  # between a client's requests: the queue should not outgrow what a team would ask


class Record:
    """The log of what was acknowledged, one line each. Thread-safe.

    A request that got no answer is not in it, whether or not it took effect.
    """

    def __init__(self, file: Path) -> None:
        self._file, self._lock = file, threading.Lock()

    def note(self, kind: str, key: str, job: str) -> None:
        with self._lock, self._file.open("a") as log:
            log.write(json.dumps({"kind": kind, "key": key, "job": job}) + "\n")

    def read(self) -> list[dict[str, str]]:
        return (
            [json.loads(line) for line in self._file.read_text().splitlines()]
            if self._file.exists()
            else []
        )

    def counts(self) -> Mapping[str, int]:
        return Counter(each["kind"] for each in self.read())


class Client(threading.Thread):
    """Submits jobs one after another, each until it is acknowledged, and cancels every third."""

    def __init__(self, url: str, token: str, record: Record, *, name: str) -> None:
        super().__init__(name=f"client {name}")
        self._url, self._token, self._record, self._name = url, token, record, name
        self.stop = threading.Event()

    def run(self) -> None:
        headers = {"Authorization": f"Bearer {self._token}"}
        with httpx.Client(
            base_url=self._url + "/v1", headers=headers, timeout=10, verify=False
        ) as http:
            number = 0
            while not self.stop.is_set():
                number += 1
                key = f"{self._name}-{number}"
                # Nothing is served twice from the database: each is a job of its own.
                body = {"workload": SMALL, "trials": 2, "improve": True}
                answer = self._until_answered(
                    http, "/jobs", json=body, headers={"Idempotency-Key": key}
                )
                if answer is None:
                    return
                job = str(answer["id"])
                self._record.note(SUBMITTED, key, job)
                if number % 3 == 0:
                    if self._until_answered(http, f"/jobs/{job}/cancel") is None:
                        return
                    self._record.note(CANCELLED, key, job)
                self.stop.wait(PAUSE_S)

    def _until_answered(
        self, http: httpx.Client, path: str, **request: Any
    ) -> dict[str, Any] | None:
        """Repeat a request until it is answered, however often the service dies.

        None once the client is stopped.
        """
        while not self.stop.is_set():
            try:
                answer = http.post(path, **request)
            except httpx.TransportError:
                time.sleep(0.05)
                continue
            if answer.status_code in (429, 503):
                time.sleep(0.2)
                continue
            answer.raise_for_status()
            document: dict[str, Any] = answer.json()
            return document
        return None


def prepared(database: Database, folder: Path) -> str:
    """The key of the clients.

    The first time, the job that keeps the workers busy is queued too.
    """
    kept = folder / "token"
    if kept.exists():
        return kept.read_text()
    target, workload = detect_cpu(), parse_spec(WORK)
    # A service's very first start measures the machine; those that are timed here do not.
    with_limits(database, target)
    with database.write() as session:
        targets.remember(session, target)
        key = workloads.remember(session, workload, to_document(workload))
        new = jobs.NewJob(
            workloads=(key,),
            target=target.key,
            threads=1,
            trials=WORK_TRIALS,
            strategy="random",
            priority=URGENT,
        )
        jobs.create(session, new)
        token = keys.create(session, name="kills", scopes=["submit"], quota=10**6)[1]
    kept.touch(mode=0o600)
    kept.write_text(token)
    return token


def faults(database: Database, record: Record) -> list[str]:
    """What is wrong with the database after the kills.

    Acknowledged requests lost or stored twice, trials lost, doubled or uncounted,
    damage.
    """
    problems = schema.check(database.engine)
    log = record.read()
    submitted = {each["key"]: each["job"] for each in log if each["kind"] == SUBMITTED}
    if len(set(submitted.values())) != len(submitted):
        problems.append("two acknowledged requests share a job")
    cancelled = {each["job"] for each in log if each["kind"] == CANCELLED}
    with database.read() as session:
        states = {row.id: row.state for row in session.execute(select(JobRow.id, JobRow.state))}
        problems += _listed("acknowledged, but not there", set(submitted.values()) - set(states))
        problems += _listed(
            "cancelled, but not so", {job for job in cancelled if states.get(job) != jobs.CANCELLED}
        )
        # A client has at most one request under way when it is stopped, whose answer it
        # does not see; clients are new each piece.
        pieces = len({key.rpartition("-")[0] for key in submitted})
        extra = len(states) - 1 - len(submitted)
        if not 0 <= extra <= max(pieces, 2):
            problems.append(
                f"{extra} jobs beyond the {len(submitted)} acknowledged ones, of {pieces} clients"
            )
        totals = (
            func.count(),
            func.count(func.distinct(TrialRow.number)),
            func.coalesce(func.max(TrialRow.number), -1),
        )
        count, different, last = session.execute(
            select(*totals).where(TrialRow.job_id == _work(session, states))
        ).one()
        done = session.scalars(
            select(TaskRow.trials_done).where(TaskRow.job_id == _work(session, states))
        ).one()
        if not count == different == last + 1 == done:
            problems.append(f"{count} trials, {different} numbers up to {last}, counted as {done}")
        rows = select(EventRow.job_id, func.count(), func.max(EventRow.sequence), JobRow.last_event)
        rows = rows.join(JobRow, JobRow.id == EventRow.job_id).group_by(
            EventRow.job_id, JobRow.last_event
        )
        gaps = {
            job
            for job, events, top, numbered in session.execute(rows)
            if not events == top == numbered
        }
        problems += _listed("events with gaps", gaps)
    return problems


def _work(session: Any, states: Mapping[str, str]) -> str:
    job: str = session.scalars(select(JobRow.id).where(JobRow.priority == URGENT)).one()
    return job


def _listed(what: str, identifiers: Iterable[str]) -> list[str]:
    named = sorted(identifiers)
    return [f"{what}: {len(named)}, first {', '.join(named[:5])}"] if named else []
