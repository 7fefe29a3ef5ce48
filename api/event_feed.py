"""Follows jobs' events for all streams of this process at once: one small query a tick
tells which jobs have news.

Events are numbered in the database, so a stream needs nothing but the number it has
seen: it reads what follows, and when there is nothing it waits here until the job's
last number has grown. A lost wake-up or a slow client costs time, never an event.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import structlog
from starlette.concurrency import run_in_threadpool

from tuner.errors import DatabaseError

log = structlog.get_logger("api.events")


class Latest(Protocol):
    """Reads the number of each job's last event (blocking)."""

    def __call__(self, job_ids: Sequence[str]) -> Mapping[str, int]: ...


class EventFeed:
    """Belongs to one event loop. `run` is the poller; it sleeps through ticks in which
    nobody listens."""

    def __init__(self, latest: Latest, *, poll_s: float) -> None:
        self._latest, self._poll_s = latest, poll_s
        self._known: dict[str, int] = {}  # job -> number of its last event, as of the last tick
        self._followers: Counter[str] = Counter()  # streams of each job
        self._holders: Counter[str] = Counter()  # streams of each key
        self._changed = asyncio.Condition()
        self._closed = False

    @property
    def streams(self) -> int:
        return self._followers.total()

    def streams_of(self, holder: str) -> int:
        return self._holders[holder]

    @asynccontextmanager
    async def following(self, job_id: str, holder: str) -> AsyncIterator[None]:
        """While inside, ticks ask for this job, and the stream counts as the holder's."""
        self._followers[job_id] += 1
        self._holders[holder] += 1
        try:
            yield
        finally:
            self._holders -= Counter((holder,))  # leaves nothing behind of those that have none
            self._followers -= Counter((job_id,))
            if job_id not in self._followers:
                self._known.pop(job_id, None)

    async def wait_beyond(self, job_id: str, sequence: int, *, timeout_s: float) -> bool:
        """Whether the job has an event numbered above `sequence`; returns as soon as it
        has, or False after `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(
                    lambda: self._closed or self._known.get(job_id, 0) > sequence
                )
        except TimeoutError:
            return False
        return self._known.get(job_id, 0) > sequence

    @property
    def closed(self) -> bool:
        return self._closed

    async def close(self) -> None:
        """Ends every wait: streams say goodbye and clients reconnect elsewhere."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()

    async def run(self) -> None:
        while not self._closed:
            if self._followers:
                await self._tick()
            await asyncio.sleep(self._poll_s)

    async def _tick(self) -> None:
        try:
            found = await run_in_threadpool(self._latest, tuple(self._followers))
        except DatabaseError as error:
            # The streams stay open; the next tick asks again.
            log.warning("events_unavailable", error=str(error))
            return
        async with self._changed:
            self._known = {job: number for job, number in found.items() if job in self._followers}
            self._changed.notify_all()
