"""Candidates on their way through the fleet, and each job's queues of them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NewType

from tuner.measure.cache import Cache
from tuner.measure.gpu.resources import Resources
from tuner.measure.outcome import Candidate
from tuner.workers.fleet.messages import Library
from tuner.workers.fleet.policy import Account

TimedCode = NewType("TimedCode", str)  # same code in the same caches: timed once


def timed_code(sha256: str, cache: Cache) -> TimedCode:
    """Of the library with this hash."""
    return TimedCode(f"{cache} {sha256}")


@dataclass(slots=True, eq=False)
class Item:
    """A candidate on its way through the fleet."""

    queue: JobQueue
    problem: str  # its key
    candidate: Candidate
    lost: list[str] = field(default_factory=list)  # the reason of each failed attempt
    library: Library | None = None
    build_s: float = 0.0
    ready_s: float = 0.0  # when it was built, on the driver's steady clock
    lane: str = ""  # the lane that may begin with it as soon as it is built
    abandoned: bool = False  # its search ended while it was at a worker

    @property
    def job(self) -> str:
        return self.queue.account.job_share.job

    @property
    def timed_code(self) -> TimedCode:
        """What it is timed as, once it is built."""
        assert self.library is not None
        return timed_code(self.library.sha256, self.queue.account.job_share.cache)

    @property
    def resources(self) -> Resources | None:
        return None if self.library is None else self.library.resources

    @property
    def code_bytes(self) -> int | None:
        return None if self.library is None else self.library.code_bytes


@dataclass(slots=True, eq=False)
class JobQueue:
    """The candidates of one job that are at no worker."""

    account: Account
    to_build: deque[Item] = field(default_factory=deque)
    ready: deque[Item] = field(default_factory=deque)
    # keys of the problems of its next candidates, the latest at the end
    announced: tuple[str, ...] = ()
    begun: bool = False  # it has had candidates

    @property
    def idle(self) -> bool:
        """Whether the job has nothing here and nothing at a worker."""
        account = self.account
        return not (self.to_build or self.ready or account.building or account.measuring)

    @property
    def problems(self) -> tuple[str, ...]:
        """Keys of the problems whose candidates are to be measured, the next ones first."""
        queued = (item.problem for item in (*self.ready, *self.to_build))
        return tuple(dict.fromkeys((*queued, *self.announced)))

    def is_ready(self, item: Item, *, again: bool = False) -> None:
        """Queues a built candidate for a lane; with `again`, at the front."""
        (self.ready.appendleft if again else self.ready.append)(item)
        self.account.ready += 1


def take(queue: deque[Item], count: int) -> list[Item]:
    """Takes a batch of candidates of one problem from the queue.

    A candidate that already lost a worker is sent alone, so that others are not lost with
    it.
    """
    batch = [queue.popleft()]
    while queue and len(batch) < count and not batch[0].lost and not queue[0].lost:
        if queue[0].problem != batch[0].problem:
            break
        batch.append(queue.popleft())
    return batch
