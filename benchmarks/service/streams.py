"""Follow many event streams at once, and time each event from its commit to its arrival."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from benchmarks.service.process import ServiceProcess
from tuner.db import events, jobs, leases
from tuner.db.engine import Database
from tuner.db.jobs import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Deltas:
    streams: int
    events_per_s: float  # written, over all jobs
    delivered: int
    missing: int  # written, but not seen by a stream of that job in time
    p50_ms: float
    p99_ms: float
    max_ms: float
    server_cpu_s: float


class Writer(threading.Thread):
    """Append events to the jobs in turn, as an orchestrator's trials do.

    `sent` keeps when each was committed.
    """

    def __init__(
        self, database: Database, job_ids: Sequence[str], *, rate: float, seconds: float
    ) -> None:
        super().__init__(name="writer")
        self._database, self._job_ids, self._rate, self._seconds = database, job_ids, rate, seconds
        self.sent: dict[tuple[str, int], float] = {}

    def run(self) -> None:
        started = time.monotonic()
        for number in count():
            due = started + number / self._rate
            if due > started + self._seconds:
                return
            time.sleep(max(0.0, due - time.monotonic()))
            job_id = self._job_ids[number % len(self._job_ids)]
            with self._database.write() as session:
                sequence = events.append(
                    session, job_id, "trial", {"number": number, "median_s": 1e-3}
                )
            self.sent[job_id, sequence] = time.monotonic()


def running_jobs(database: Database, like: str, number: int) -> list[str]:
    """New running jobs, copies of the job `like`, which get events and nothing else."""
    with database.write() as session:
        model: Job = jobs.get(session, like)
        made = []
        for _ in range(number):
            same = jobs.NewJob(
                workloads=(model.tasks[0].workload,),
                target=model.target,
                threads=model.threads,
                trials=model.trials,
                owner=model.owner,
            )
            job, _ = jobs.create(session, same)
            leases.claim(session, job.id, owner="load")
            made.append(job.id)
    return made


async def follow(
    service: ServiceProcess, token: str, job_id: str, seen: dict[int, float], ready: asyncio.Event
) -> None:
    """Reads one job's events until cancelled: when each number arrived."""
    reader, writer = await asyncio.open_connection(service.host, service.port, limit=1 << 22)
    request = (
        f"GET /v1/jobs/{job_id}/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: "
        f"Bearer {token}\r\n\r\n"
    )
    writer.write(request.encode())
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        ready.set()
        while line := await reader.readline():
            if line.startswith(b"data:"):
                seen[json.loads(line[5:])["sequence"]] = time.monotonic()
    finally:
        writer.close()


async def measure(
    service: ServiceProcess,
    database: Database,
    token: str,
    job_ids: Sequence[str],
    *,
    streams: int,
    rate: float,
    seconds: float,
) -> Deltas:
    followed = [
        (job_ids[number % len(job_ids)], dict[int, float](), asyncio.Event())
        for number in range(streams)
    ]
    tasks = [
        asyncio.create_task(follow(service, token, job_id, seen, ready))
        for job_id, seen, ready in followed
    ]
    await asyncio.wait_for(asyncio.gather(*(ready.wait() for _, _, ready in followed)), timeout=30)
    await asyncio.sleep(1.0)  # the events that were there before
    cpu_s = service.cpu_s()
    writer = Writer(database, job_ids, rate=rate, seconds=seconds)
    writer.start()
    while writer.is_alive():
        await asyncio.sleep(0.1)
    await asyncio.sleep(3.0)
    used_s = service.cpu_s() - cpu_s
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    expected = [
        (seen.get(sequence), sent_at)
        for job_id, seen, _ in followed
        for (job, sequence), sent_at in writer.sent.items()
        if job == job_id
    ]
    waits = sorted(arrived - sent_at for arrived, sent_at in expected if arrived is not None)
    at_ms = [
        round(waits[min(len(waits) - 1, int(len(waits) * share))] * 1e3, 1)
        for share in (0.5, 0.99, 1.0)
    ]
    return Deltas(
        streams=streams,
        events_per_s=rate,
        delivered=len(waits),
        missing=len(expected) - len(waits),
        p50_ms=at_ms[0],
        p99_ms=at_ms[1],
        max_ms=at_ms[2],
        server_cpu_s=round(used_s, 2),
    )
