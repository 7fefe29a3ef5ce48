"""The demand of jobs: their queues of candidates, and whose candidates go next.

The part of the pipeline that knows of jobs. Pure, as the pipeline is: the policy decides,
by the jobs' accounts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from tuner.measure.outcome import Candidate
from tuner.workers.fleet.candidates import Item, JobQueue
from tuner.workers.fleet.policy import CREDIT_S, Account, JobShare, Key, LaneShare, Place, Policy
from tuner.workers.fleet.worker_slot import WorkerSlot

ANNOUNCED = 2  # problems of a job


class Demand:
    """The jobs that have, or had, candidates and have not left."""

    def __init__(self, policy: Policy, share: LaneShare) -> None:
        self._policy = policy
        self._share = share
        self._queues: dict[str, JobQueue] = {}
        self._accounts: dict[str, Account] = {}
        self._virtual_s = 0.0  # virtual time of the last job that got a lane: new ones start there
        self._places: dict[Place, int] = {}
        self._builders = 1

    def __iter__(self) -> Iterator[JobQueue]:
        return iter(self._queues.values())

    @property
    def to_build(self) -> int:
        return sum(len(queue.to_build) for queue in self)

    @property
    def ready(self) -> int:
        return sum(len(queue.ready) for queue in self)

    def slots(self, places: Iterable[Place], builders: int) -> None:
        """Sets the fleet's lanes and number of builders, whenever they change."""
        self._builders = builders
        self._places = {}
        for place in places:
            self._places[place] = self._places.get(place, 0) + 1
        for account in self._accounts.values():
            self._equip(account)

    def _equip(self, account: Account) -> None:
        fitting = [place for place in self._places if place.fits(account.job_share)]
        best = min(fitting, key=lambda place: place.waste(account.job_share), default=None)
        account.lanes = self._places[best] if best is not None else 1
        account.fitting = sum(self._places[place] for place in fitting)
        account.builders = self._builders

    def submit(self, job_share: JobShare, problem: str, candidates: Iterable[Candidate]) -> None:
        """Queues candidates of a job; without candidates, announces their problem.

        The latest problems stay announced: the one being measured, and the one to come.
        A new job starts level with the others. One that had no candidates for a while may
        catch up on a bounded time.
        """
        queue = self._queues.get(job_share.job)
        if queue is None:
            queue = self._queues[job_share.job] = JobQueue(Account(job_share))
            self._accounts[job_share.job] = queue.account
        if queue.idle:
            queue.account.level(self._virtual_s, credit_s=CREDIT_S if queue.begun else 0.0)
        queue.account.job_share = job_share
        if problem not in queue.announced:
            queue.announced = (*queue.announced, problem)[-ANNOUNCED:]
        self._equip(queue.account)
        queue.to_build.extend(Item(queue, problem, candidate) for candidate in candidates)
        queue.begun |= bool(queue.to_build)

    def abandon(self, job: str) -> None:
        """Forgets the job's candidates that are at no worker."""
        queue = self._queues.get(job)
        if queue is not None:
            queue.to_build.clear()
            queue.ready.clear()
            queue.announced, queue.account.ready = (), 0

    def leave(self, job: str) -> None:
        self._queues.pop(job, None)
        self._accounts.pop(job, None)

    # -- whose candidates go next --

    def next_to_build(
        self, room: Callable[[Item], bool], lane_takes: Callable[[str], bool]
    ) -> JobQueue | None:
        """The job whose candidates go to the least busy builder next.

        None if the builder has no `room` for the job's next candidate: no other job may
        overtake, or a candidate that must be sent alone would wait as long as others keep
        the builder busy. Jobs whose problem no lane takes yet go last, and leave a
        builder's core to preparing a lane: their candidates would only wait.
        """
        waiting = [queue for queue in self if queue.to_build]
        accepted = [queue for queue in waiting if lane_takes(queue.to_build[0].problem)]
        others = [queue for queue in waiting if queue not in accepted and self._fitting(queue)]
        if (
            not accepted
            and others
            and sum(queue.account.building for queue in others) >= self._builders - 1
        ):
            waiting = [queue for queue in waiting if queue not in others]
        waiting = accepted or waiting
        if len(waiting) > 1:
            self._share.mark(self._accounts)
        queue = min(waiting, key=lambda queue: self._policy.build(queue.account), default=None)
        return queue if queue is not None and room(queue.to_build[0]) else None

    def next_for_lane(
        self, free: Collection[Place], lane_at: Callable[[Place, Item], WorkerSlot | None]
    ) -> tuple[JobQueue, WorkerSlot] | None:
        """The job that gets a lane next, and the lane, of the kinds that are `free`.

        None if the lane has no room for its next candidate. `lane_at` gives the free lane
        of a kind that takes a candidate; jobs that no lane takes are passed over.
        """
        waiting = [queue for queue in self if queue.ready]
        if len(waiting) > 1:
            self._share.mark(self._accounts)
        chosen: tuple[Key, JobQueue, WorkerSlot] | None = None
        for queue in waiting:
            for place in free:
                if place.fits(queue.account.job_share):
                    key = self._policy.lane(queue.account, place)
                    if (chosen is None or key < chosen[0]) and (
                        lane := lane_at(place, queue.ready[0])
                    ) is not None:
                        chosen = key, queue, lane
        if chosen is None:
            return None
        _, queue, lane = chosen
        if not lane.room(queue.ready[0]):
            return None
        self._virtual_s = max(self._virtual_s, queue.account.virtual_s)
        return queue, lane

    def _fitting(self, queue: JobQueue) -> bool:
        """Whether there are lanes that the job fits."""
        return any(place.fits(queue.account.job_share) for place in self._places)

    # -- results --

    def measured(self, queue: JobQueue, seconds: float, at_s: float) -> None:
        """Charges the job for a candidate that held a lane for so long."""
        queue.account.measured(seconds)
        self._share.note(queue.account.job_share.owner, seconds, at_s)
