"""Sharing policies: whose candidates go next when several jobs share a fleet.

Pure: a policy orders jobs by their accounts, and the smallest key goes first. The
driver's pipeline and the simulations on a virtual clock use the same objects, at every
batch boundary. FAIR, SRTF and PACK follow SALUS (Yu and Chowdhury, MLSys 2020).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from tuner.measure.cache import WARM, Cache

PolicyName = Literal["fair", "srtf", "pack", "fifo"]
Key = tuple[float, ...]

FIRST_ITEM_S = 0.05  # assumed time of a candidate before the first one of its job has ended
LEARNING_RATE = 0.2  # weight of the newest candidate in the moving averages
# Lane time that a job may catch up on after it had no candidates: a few pauses for planning.
CREDIT_S = 5.0
DOUBLINGS = 10  # beyond this priority, up or down, shares change no further


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShare:
    """A job's claim to a shared fleet, sent with each submission."""

    job: str = ""  # id
    owner: str = ""  # whose quota it counts against
    priority: int = 0  # higher first; FAIR: each step doubles the share
    order: int = 0  # in which jobs were claimed
    threads: int = 1  # a lane needs as many cores
    memory_bytes: int = 0  # of a candidate's buffers
    trials_left: int = 0  # of its budget, what is in flight included
    seconds_left: float | None = None  # of its budget; None: it has none
    cache: Cache = WARM  # what its timed calls find in the caches

    @property
    def weight(self) -> float:
        """Its share of the lanes' time under FAIR, relative to the others'."""
        return float(2.0 ** max(-DOUBLINGS, min(DOUBLINGS, self.priority)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a lane offers."""

    threads: int = 2**31  # cores
    memory_bytes: int | None = None  # of a GPU; None: not what it is short of

    def fits(self, job_share: JobShare) -> bool:
        return job_share.threads <= self.threads and (
            self.memory_bytes is None or job_share.memory_bytes <= self.memory_bytes
        )

    def waste(self, job_share: JobShare) -> Key:
        """What the job would leave unused: memory, if the lane has its own, then cores."""
        left = 0 if self.memory_bytes is None else self.memory_bytes - job_share.memory_bytes
        return float(left), float(self.threads - job_share.threads)


@dataclass(slots=True, eq=False)
class Account:
    """A job's account: what it has used of the fleet, holds, and still needs.

    Kept by the pipeline.
    """

    job_share: JobShare
    build_s: float = FIRST_ITEM_S  # moving average of one candidate's time at a builder
    lane_s: float = FIRST_ITEM_S  # and on a lane
    # lane time so far; candidates that never reached a lane count with their build time
    charged_s: float = 0.0
    # virtual time added when it came, so that it starts level with the others
    head_start_s: float = 0.0
    building: int = 0  # candidates at builders
    ready: int = 0  # built, waiting for a lane
    measuring: int = 0  # at lanes
    lanes: int = 1  # of the fleet that fit it best
    fitting: int = 1  # lanes that fit it
    builders: int = 1  # of the fleet
    # its owner used more of the lanes' time than allowed; the others go first
    over_quota: bool = False

    @property
    def virtual_s(self) -> float:
        """Lane time divided by weight, including what is on lanes now."""
        return (
            self.head_start_s
            + (self.charged_s + self.measuring * self.lane_s) / self.job_share.weight
        )

    @property
    def virtual_ahead_s(self) -> float:
        """`virtual_s` once all is measured that is built or being built."""
        waiting = self.building + self.ready + self.measuring
        return self.head_start_s + (self.charged_s + waiting * self.lane_s) / self.job_share.weight

    @property
    def remaining_s(self) -> float:
        """How long the job would still take on a fleet of its own."""
        trial_s = max(self.build_s / max(1, self.builders), self.lane_s / max(1, self.fitting))
        work_s = self.job_share.trials_left * trial_s
        left_s = self.job_share.seconds_left
        return work_s if left_s is None else min(work_s, left_s)

    def level(self, now_virtual_s: float, *, credit_s: float) -> None:
        """Limits what a job that had no candidates may catch up on to `credit_s`."""
        self.head_start_s += max(
            0.0, now_virtual_s - credit_s / self.job_share.weight - self.virtual_s
        )

    def built(self, seconds: float) -> None:
        self.build_s += LEARNING_RATE * (seconds - self.build_s)

    def measured(self, seconds: float) -> None:
        self.charged_s += seconds
        self.lane_s += LEARNING_RATE * (seconds - self.lane_s)


class Policy(Protocol):
    """An order of jobs that have candidates: the smallest key goes first."""

    def build(self, job: Account) -> Key:
        """The key of a job at a free builder."""
        ...

    def lane(self, job: Account, place: Place) -> Key:
        """The key of a job at a free lane that it fits."""
        ...


def _rank(job: Account) -> Key:
    """Quotas first, then priorities."""
    return float(job.over_quota), -float(job.job_share.priority)


class Fifo:
    """The job claimed first gets all it can use; the others get the rest."""

    def build(self, job: Account) -> Key:
        return *_rank(job), float(job.job_share.order)

    def lane(self, job: Account, place: Place) -> Key:
        return *self.build(job), *place.waste(job.job_share)


class Fair:
    """Lane time in proportion to weights.

    Start-time fair queueing (Goyal, Vin and Cheng, 1996) with a bounded credit.
    """

    def build(self, job: Account) -> Key:
        return float(job.over_quota), job.virtual_ahead_s, float(job.job_share.order)

    def lane(self, job: Account, place: Place) -> Key:
        return (
            float(job.over_quota),
            job.virtual_s,
            float(job.job_share.order),
            *place.waste(job.job_share),
        )


class Srtf:
    """The job with the least work left goes first: the shortest mean time to completion."""

    def build(self, job: Account) -> Key:
        return *_rank(job), job.remaining_s, float(job.job_share.order)

    def lane(self, job: Account, place: Place) -> Key:
        return *self.build(job), *place.waste(job.job_share)


class Pack:
    """Each lane goes to the job that leaves least of it unused.

    Builders serve the job whose lanes run short first.
    """

    def build(self, job: Account) -> Key:
        supply_s = (job.building + job.ready + job.measuring) * job.lane_s / max(1, job.lanes)
        return *_rank(job), supply_s, float(job.job_share.order)

    def lane(self, job: Account, place: Place) -> Key:
        return *_rank(job), *place.waste(job.job_share), job.virtual_s, float(job.job_share.order)


POLICIES: Mapping[PolicyName, Policy] = {
    "fair": Fair(),
    "srtf": Srtf(),
    "pack": Pack(),
    "fifo": Fifo(),
}


@dataclass(slots=True, eq=False)
class LaneShare:
    """Limits each owner to a share `most` of the lanes' time while others need it.

    Earlier use decays with a half-life.
    """

    most: float = 1.0  # share of an owner; 1: no bound
    half_life_s: float = 60.0
    _used_s: dict[str, float] = field(default_factory=dict)
    _at_s: float | None = None

    def note(self, owner: str, seconds: float, at_s: float) -> None:
        """Adds lane time of an owner that ended at this moment."""
        if self._at_s is not None and at_s > self._at_s:
            kept = 0.5 ** ((at_s - self._at_s) / self.half_life_s)
            self._used_s = {
                name: used * kept for name, used in self._used_s.items() if used * kept > 1e-6
            }
        self._at_s = at_s if self._at_s is None else max(self._at_s, at_s)
        self._used_s[owner] = self._used_s.get(owner, 0.0) + seconds

    def mark(self, accounts: Mapping[str, Account]) -> None:
        """Sets `over_quota` of each account."""
        if self.most >= 1.0:
            return
        used = dict(self._used_s)
        for account in accounts.values():
            owner = account.job_share.owner
            used[owner] = used.get(owner, 0.0) + account.measuring * account.lane_s
        total = sum(used.values())
        for account in accounts.values():
            account.over_quota = used[account.job_share.owner] > self.most * total
