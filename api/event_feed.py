"""Polls the events of jobs for all streams of this process, with one query a tick.

Events are numbered in the database, so that a stream needs only the number it has seen.
It reads what follows and otherwise waits here until the job's last number has grown. A
lost wake-up or a slow client costs time, never an event.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import structlog
from starlette.concurrency import run_in_threadpool

log = structlog.get_logger("api.events")


class Latest(Protocol):
    """Reads the number of each job's last event (blocking)."""

    def __call__(self, job_ids: Sequence[str]) -> Mapping[str, int]: ...


class EventFeed:
    """The number of each followed job's last event, and a way to wait for the next one.

    Belongs to one event loop. `run` is the poller, which skips ticks without followers.
    """

    def __init__(self, latest: Latest, *, poll_s: float) -> None:
        self._latest = latest
        self._poll_s = poll_s
        self._last_events: dict[str, int] = {}  # by job, as of the last tick
        self._followers: Counter[str] = Counter()  # streams of each job
        self._holders: Counter[str] = Counter()  # streams of each key
        self._changed = asyncio.Condition()
        self._closed = False

    @property
    def streams(self) -> int:
        return self._followers.total()

    def streams_of(self, holder: str) -> int:
        return self._holders[holder]

    @contextmanager
    def following(self, job_id: str, holder: str) -> Iterator[None]:
        """Polls this job while inside, and counts the stream as the holder's."""
        self._followers[job_id] += 1
        self._holders[holder] += 1
        try:
            yield
        finally:
            self._holders -= Counter((holder,))  # also removes counts of zero
            self._followers -= Counter((job_id,))
            if job_id not in self._followers:
                self._last_events.pop(job_id, None)

    async def wait_beyond(self, job_id: str, sequence: int, *, timeout_s: float) -> bool:
        """Waits until the job has an event numbered above `sequence`.

        Returns whether it has one within `timeout_s`.
        """
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(
                    lambda: self._closed or self._last_events.get(job_id, 0) > sequence
                )
        except TimeoutError:
            return False
        return self._last_events.get(job_id, 0) > sequence

    @property
    def closed(self) -> bool:
        return self._closed

    async def close(self) -> None:
        """Ends every wait, so that streams end and clients reconnect."""
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
            latest = await run_in_threadpool(self._latest, tuple(self._followers))
        # The streams stay open; the next tick tries again.
        except Exception as error:
            log.warning("events_unavailable", error=str(error))
            return
        async with self._changed:
            self._last_events = {
                job: number for job, number in latest.items() if job in self._followers
            }
            self._changed.notify_all()
