"""Simulate jobs that share a fleet, on a virtual clock.

Pipeline and policies are the driver's own. Only the work of the workers and the searches
is simulated. A candidate takes its recorded seconds at a builder and on a lane. A search
keeps as many candidates in flight as the orchestrator's does, and pauses to plan.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, cycle, islice
from typing import Any

from tuner.measure.outcome import Candidate, Conditions, Timed
from tuner.workers.fleet.messages import BuildRequest, Built, Library, Measured, MeasureRequest
from tuner.workers.fleet.pipeline import Pipeline
from tuner.workers.fleet.policy import JobShare, Place, PolicyName

# (Seconds at a builder, seconds on a lane) of recorded trials, in their order.
Durations = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualJob:
    name: str
    trials: int
    durations: Durations  # repeated as often as needed
    threads: int = 1
    priority: int = 0
    owner: str = ""
    comes_s: float = 0.0  # when it is claimed
    round_trials: int = 64  # after as many the search plans
    plan_s: float = 0.0  # for so long, while it offers nothing new


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualFleet:
    lanes: Sequence[int]  # cores of each
    builders: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A candidate on a lane."""

    job: str
    lane: str
    started_s: float
    ended_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What happened."""

    policy: PolicyName
    fleet: VirtualFleet
    jobs: Mapping[str, VirtualJob]
    holds: Sequence[Hold]
    completed_s: Mapping[str, float]  # after the job's coming

    @property
    def all_active_s(self) -> tuple[float, float]:
        """From when the last job has come to when the first has ended."""
        ends = (job.comes_s + self.completed_s[name] for name, job in self.jobs.items())
        return max(job.comes_s for job in self.jobs.values()), min(ends)

    def lane_time_s(self, since_s: float, until_s: float) -> dict[str, float]:
        """Each job's time on lanes within these moments."""
        seconds = dict.fromkeys(self.jobs, 0.0)
        for hold in self.holds:
            seconds[hold.job] += max(0.0, min(hold.ended_s, until_s) - max(hold.started_s, since_s))
        return seconds

    @property
    def fairness(self) -> float:
        """Jain's index of the jobs' lane time while all were active.

        1 is equal, 1/n is one job alone.
        """
        return jain(list(self.lane_time_s(*self.all_active_s).values()))

    @property
    def mean_completion_s(self) -> float:
        return sum(self.completed_s.values()) / len(self.completed_s)

    @property
    def ended_s(self) -> float:
        return max(hold.ended_s for hold in self.holds)

    @property
    def occupancy(self) -> float:
        """Share of all lanes' cores in use, until the last job's end."""
        used = sum(
            (hold.ended_s - hold.started_s) * self.jobs[hold.job].threads for hold in self.holds
        )
        return used / (sum(self.fleet.lanes) * self.ended_s)


def jain(values: Sequence[float]) -> float:
    """Jain, Chiu and Hawe, DEC-TR-301 (1984)."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


@dataclass(slots=True, eq=False)
class _Search:
    job: VirtualJob
    order: int
    next_number: int = 0
    in_flight: int = 0
    done: int = 0
    planning: bool = False


@dataclass(slots=True, eq=False)
class _Simulation:
    pipeline: Pipeline
    searches: Mapping[str, _Search]
    capacity: int
    seconds: Mapping[str, Durations]
    now_s: float = 0.0
    events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    ticket: count[int] = field(default_factory=count)
    free_s: dict[str, float] = field(default_factory=dict)  # by worker, until when it is busy
    holds: list[Hold] = field(default_factory=list)
    ended_s: dict[str, float] = field(default_factory=dict)

    def schedule(self, moment_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self.events, (moment_s, next(self.ticket), act))

    def run(self) -> None:
        while self.events:
            self.now_s, _, act = heapq.heappop(self.events)
            act()
            self._dispatch()
            for report in self.pipeline.collect()[0]:
                self._report(self.searches[report.job])
            self.pipeline.spent()
            self._dispatch()

    def fill(self, search: _Search) -> None:
        """As many candidates as keep the fleet busy, within the budget."""
        free = min(self.capacity - search.in_flight, search.job.trials - search.next_number)
        if search.planning or free <= 0:
            return
        numbers = range(search.next_number, search.next_number + free)
        search.next_number += free
        search.in_flight += free
        job_share = JobShare(
            job=search.job.name,
            owner=search.job.owner,
            priority=search.job.priority,
            order=search.order,
            threads=search.job.threads,
            trials_left=search.job.trials - search.done,
        )
        candidates = [Candidate(number=number, config={"knob": number}) for number in numbers]
        self.pipeline.submit(search.job.name, candidates, job_share=job_share)

    def _report(self, search: _Search) -> None:
        search.in_flight -= 1
        search.done += 1
        if search.done == search.job.trials:
            self.ended_s[search.job.name] = self.now_s
            self.pipeline.abandon(search.job.name, leaves=True)
        elif search.job.plan_s and search.done % search.job.round_trials == 0:
            search.planning = True

            def planned() -> None:
                search.planning = False
                self.fill(search)

            self.schedule(self.now_s + search.job.plan_s, planned)
        self.fill(search)

    def _dispatch(self) -> None:
        while build := self.pipeline.next_build():
            self._build(*build)
        while measurement := self.pipeline.next_measurement():
            self._measure(*measurement)

    def _build(self, worker: str, job: str, requests: Sequence[BuildRequest]) -> None:
        begun, results = self._begin(worker), list[Built]()
        for request in requests:
            ended = begun + self.seconds[job][request.number][0]
            library = Library(sha256=f"{job}/{request.number}", path="", symbol="k")
            results.append(
                Built(number=request.number, result=library, started_s=begun, ended_s=ended)
            )
            begun = ended
        self._end(worker, begun, lambda: self.pipeline.built(worker, results))

    def _measure(self, worker: str, job: str, requests: Sequence[MeasureRequest]) -> None:
        begun, results = self._begin(worker), list[Measured]()
        for request in requests:
            ended = begun + self.seconds[job][request.number][1]
            conditions = Conditions(lane=worker, isolation="virtual")
            timed = Timed(
                samples_s=(1e-3,),
                max_rel_error=0.0,
                conditions=conditions,
                artifact=request.library.sha256,
            )
            results.append(
                Measured(number=request.number, outcome=timed, started_s=begun, ended_s=ended)
            )
            self.holds.append(Hold(job=job, lane=worker, started_s=begun, ended_s=ended))
            begun = ended
        self._end(worker, begun, lambda: self.pipeline.measured(worker, results))

    def _begin(self, worker: str) -> float:
        return max(self.now_s, self.free_s.get(worker, 0.0))

    def _end(self, worker: str, moment_s: float, act: Callable[[], None]) -> None:
        self.free_s[worker] = moment_s
        self.schedule(moment_s, act)


def simulate(
    jobs: Sequence[VirtualJob], fleet: VirtualFleet, policy: PolicyName, **quotas: Any
) -> Course:
    """Runs all jobs to their ends. `quotas` go to the pipeline."""
    lanes = {f"lane:{number}": Place(threads=cores) for number, cores in enumerate(fleet.lanes)}
    builders = [f"build:{number}" for number in range(fleet.builders)]
    pipeline = Pipeline(
        builders=builders, runners=list(lanes), policy=policy, places=lanes, **quotas
    )
    simulation = _Simulation(
        pipeline,
        {job.name: _Search(job, order) for order, job in enumerate(jobs)},
        capacity=4 + 2 * fleet.builders + 3 * len(fleet.lanes),
        seconds={job.name: list(islice(cycle(job.durations), job.trials)) for job in jobs},
    )
    for search in simulation.searches.values():
        simulation.schedule(search.job.comes_s, lambda search=search: simulation.fill(search))  # type: ignore[misc]  # a default binds it
    simulation.run()
    named = {job.name: job for job in jobs}
    completed = {name: ended - named[name].comes_s for name, ended in simulation.ended_s.items()}
    return Course(
        policy=policy, fleet=fleet, jobs=named, holds=simulation.holds, completed_s=completed
    )
