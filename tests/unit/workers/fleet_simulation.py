"""A fleet's slots on a virtual clock, and what tests of its books give it to do."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tuner.measure.outcome import Candidate, Conditions, Timed
from tuner.workers.fleet.messages import (
    BuildRequest,
    Built,
    Library,
    Measured,
    MeasureRequest,
    Report,
    Span,
)
from tuner.workers.fleet.pipeline import Pipeline

Event = tuple[float, int, Callable[[], None]]


def timed(seconds: float, library: Library) -> Timed:
    conditions = Conditions(lane="cpu:1", isolation="process")
    return Timed(
        samples_s=(seconds,), max_rel_error=0.0, conditions=conditions, artifact=library.sha256
    )


@dataclass
class Simulation:
    """Worker slots that take virtual time, work one batch after the other and may die with
    what they hold."""

    pipeline: Pipeline
    build_s: float = 0.1
    measure_s: float = 0.2
    travel_s: float = 0.0  # of a message, either way
    deaths: float = 0.0  # chance that a batch kills its slot
    poison: frozenset[int] = frozenset()  # numbers that always do
    code: Callable[[int], int] = lambda number: number  # candidates with equal code are duplicates
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    now: float = 0.0
    events: list[Event] = field(default_factory=list)
    free_at: dict[str, float] = field(default_factory=dict)
    generation: Counter[str] = field(default_factory=Counter)
    reports: list[Report] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    overlaps: int = 0  # builds in flight while something is measured
    measured_codes: Counter[str] = field(default_factory=Counter)
    count: int = 0

    def run(self) -> list[Report]:
        self.dispatch()
        while self.events:
            self.now, _, act = heapq.heappop(self.events)
            act()
            self.dispatch()
            reports, spans = self.pipeline.collect()
            self.reports += reports
            self.spans += spans
        return self.reports

    def dispatch(self) -> None:
        while build := self.pipeline.next_build():
            worker, _, requests = build
            numbers = [request.number for request in requests]
            self.start(worker, self.build_s * len(requests), numbers, partial(self.build, requests))
        while measurement := self.pipeline.next_measurement():
            worker, _, to_measure = measurement
            numbers = [candidate.number for candidate in to_measure]
            self.start(
                worker, self.measure_s * len(to_measure), numbers, partial(self.measure, to_measure)
            )
        building = any(slot.load for slot in self.pipeline.builders.values())
        self.overlaps += building and any(slot.load for slot in self.pipeline.runners.values())

    def start(
        self,
        worker: str,
        seconds: float,
        numbers: list[int],
        work: Callable[[float, float], list[Built] | list[Measured]],
    ) -> None:
        begun = max(self.now + self.travel_s, self.free_at.get(worker, 0.0))
        self.free_at[worker] = begun + seconds
        generation = self.generation[worker]
        dies = bool(self.poison & set(numbers)) or self.rng.random() < self.deaths

        def end() -> None:
            if generation != self.generation[worker]:
                return
            if dies:
                self.generation[worker] += 1
                self.free_at[worker] = self.now
                self.pipeline.lost(worker, "killed")
                return
            results = work(begun, begun + seconds)
            if worker in self.pipeline.builders:
                self.pipeline.built(worker, results)  # type: ignore[arg-type]  # what builders give
            else:
                self.pipeline.measured(worker, results)  # type: ignore[arg-type]  # what runners give

        self.count += 1
        heapq.heappush(self.events, (begun + seconds + self.travel_s, self.count, end))

    def build(self, requests: list[BuildRequest], started: float, ended: float) -> list[Built]:
        results = []
        for request in requests:
            made = library(self.code(request.number))
            results.append(
                Built(number=request.number, result=made, started_s=started, ended_s=ended)
            )
        return results

    def measure(
        self, requests: list[MeasureRequest], started: float, ended: float
    ) -> list[Measured]:
        share = (ended - started) / len(requests)
        results = []
        for place, request in enumerate(requests):
            self.measured_codes[request.library.sha256] += 1
            outcome = timed(1.0 + request.number, request.library)
            results.append(
                Measured(
                    number=request.number,
                    outcome=outcome,
                    started_s=started + place * share,
                    ended_s=started + (place + 1) * share,
                )
            )
        return results


def candidates(count: int) -> list[Candidate]:
    return [Candidate(number=number, config={"knob": number}) for number in range(count)]


def library(number: int) -> Library:
    return Library(sha256=f"code{number}", path="", symbol="k")


def ready(pipeline: Pipeline, at_s: float = 0.0) -> None:
    """Everything that can be built is, by whatever builders take it."""
    while build := pipeline.next_build():
        worker, _, requests = build
        built = [
            Built(
                number=request.number,
                result=library(request.number),
                started_s=at_s,
                ended_s=at_s + 0.1,
            )
            for request in requests
        ]
        pipeline.built(worker, built)
