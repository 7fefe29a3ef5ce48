"""Spaces and response functions for tests of the search: small, deterministic, with
interactions, cliffs and illegal regions.

The response imitates a tiled matrix product: register tiles that must fit, cache
footprints, packing that pays for large strides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import log2

import numpy as np
from numpy.typing import NDArray

from tuner.measure.outcome import Candidate, Conditions, Failed, FailureKind, Outcome, Timed, Trial
from tuner.spaces.core.space import Combination, Knob, Points, Space

CONDITIONS = Conditions(lane="synthetic", isolation="none")
_SPLITS = tuple((outer, inner) for outer, inner in product((1, 2, 4, 8, 16), (1, 2, 4, 6, 8, 16)))


def large_space() -> Space:
    """Two sketches, 216,480 points."""
    tiled = Combination(
        name="tiled",
        knobs=(
            Knob(name="tiled.i", values=_SPLITS),
            Knob(name="tiled.j", values=_SPLITS),
            Knob(name="tiled.k", values=(1, 2, 4, 8, 16)),
            Knob(name="tiled.order", values=("ijk", "ikj", "kij")),
            Knob(name="tiled.unroll", values=(0, 16, 64, 256)),
            Knob(name="tiled.pack", values=(0, 1)),
            Knob(name="tiled.cache", values=(0, 1)),
        ),
    )
    plain = Combination(
        name="plain",
        knobs=(
            Knob(name="plain.j", values=_SPLITS),
            Knob(name="plain.unroll", values=(0, 16, 64, 256)),
            Knob(name="plain.par", values=(0, 1)),
        ),
    )
    return Space((tiled, plain))


def small_space() -> Space:
    """Two sketches, 76 points: exhausted within a test."""
    first = Combination(
        name="first",
        knobs=(
            Knob(name="first.a", values=tuple(range(6))),
            Knob(name="first.b", values=(1, 2, 4, 8, 16, 32)),
        ),
    )
    second = Combination(
        name="second",
        knobs=(
            Knob(name="second.a", values=((1, 1), (1, 2), (2, 2), (4, 2))),
            Knob(name="second.b", values=tuple("pqrstuvwxy")),
        ),
    )
    return Space((first, second))


@dataclass(frozen=True, kw_only=True)
class Response:
    """Seconds of a point of `large_space`; None where it is illegal. `shift` moves the
    best tiles, as another shape would."""

    space: Space
    shift: float = 0.0
    noise: float = 0.02
    registers: int = 128  # a register tile of more elements is illegal

    def seconds(self, points: Points) -> NDArray[np.float64]:
        """Shape (n,); infinite where illegal (inside the tests only)."""
        return np.array([self._one(point) for point in points], np.float64)

    def outcome(self, point: NDArray[np.int32]) -> Outcome:
        seconds = self._one(point)
        if not np.isfinite(seconds):
            return Failed(kind=FailureKind.BUILD_ERROR, message="too many registers")
        return Timed(
            samples_s=(seconds,), max_rel_error=1e-7, conditions=CONDITIONS, artifact="0" * 64
        )

    def _one(self, point: NDArray[np.int32]) -> float:
        config = self.space.config(point)
        jitter = np.random.default_rng(self.space.rank(point)).standard_normal() * self.noise
        if config["sketch"] == "plain":
            outer, inner = _pair(config["plain.j"])
            cost = (
                3.0
                + 0.3 * abs(log2(inner) - 3)
                + 0.1 * abs(log2(outer) - 2)
                - 0.2 * log2(1 + _number(config["plain.unroll"])) / 8
            )
            return 1e-3 * float(np.exp(jitter)) * cost
        (io, ii), (jo, ji) = _pair(config["tiled.i"]), _pair(config["tiled.j"])
        k, unroll, pack = (
            _number(config["tiled.k"]),
            _number(config["tiled.unroll"]),
            _number(config["tiled.pack"]),
        )
        if ii * ji > self.registers or unroll * ii > 2048:
            return float("inf")
        registers = ii * ji / 8
        cost = 1.0 + 0.25 * abs(log2(registers) - 3 - self.shift) + (0.8 if registers > 12 else 0.0)
        footprint = log2(io * ii * k + jo * ji * k)
        cost += 0.12 * abs(footprint - 9 - self.shift) * (1.0 if pack else 1.6)
        cost += {
            "ijk": 0.5,
            "ikj": 0.1 if ji >= 8 else 0.6,
            "kij": 0.0 if config["tiled.cache"] else 0.7,
        }[str(config["tiled.order"])]
        cost += 0.15 * abs(log2(1 + unroll) - 6) / 2 + 0.1 * pack * (k <= 2)
        return 1e-3 * float(np.exp(jitter)) * cost


class DirectMeasurer:
    """A `Measurer` that answers at once from a response, in the order submitted."""

    def __init__(self, space: Space, response: Response, *, capacity: int = 2) -> None:
        self._space, self._response, self._capacity = space, response, capacity
        self._waiting: list[Candidate] = []
        self.submitted: list[Candidate] = []
        self.largest_in_flight = 0

    @property
    def capacity(self) -> int:
        return self._capacity

    def submit(self, candidates: Sequence[Candidate]) -> None:
        self._waiting += candidates
        self.submitted += candidates
        self.largest_in_flight = max(self.largest_in_flight, len(self._waiting))

    def results(self, *, timeout_s: float) -> Iterator[Trial]:
        while self._waiting:
            yield self.answer(self._waiting.pop(0))

    def answer(self, candidate: Candidate) -> Trial:
        return measured(self._space, self._response, candidate)

    def close(self) -> None:
        self._waiting.clear()


def measured(space: Space, response: Response, candidate: Candidate) -> Trial:
    """The default schedule (an empty config) takes 20 ms."""
    if candidate.config:
        outcome = response.outcome(space.point(candidate.config))
    else:
        outcome = Timed(
            samples_s=(20e-3,), max_rel_error=0.0, conditions=CONDITIONS, artifact="f" * 64
        )
    return Trial(
        number=candidate.number,
        config=candidate.config,
        outcome=outcome,
        build_s=0.1,
        measure_s=0.05,
    )


class DisturbedMeasurer(DirectMeasurer):
    """The same on a core that others slow by half during every third trial, and that knows it."""

    def answer(self, candidate: Candidate) -> Trial:
        return disturbed(super().answer(candidate), 1.5 if candidate.number % 3 == 1 else 1.0)


class UnfeltMeasurer(DirectMeasurer):
    """The same where the kernels feel nothing of that, and the core says they do."""

    def answer(self, candidate: Candidate) -> Trial:
        trial = super().answer(candidate)
        if candidate.number % 3 != 1 or not isinstance(trial.outcome, Timed):
            return trial
        conditions = replace(trial.outcome.conditions, pace=1.0 / 1.5)
        return replace(trial, outcome=replace(trial.outcome, conditions=conditions))


def disturbed(trial: Trial, slowness: float = 1.5) -> Trial:
    """The trial as a core so many times slower would have had it."""
    if not isinstance(trial.outcome, Timed):
        return trial
    samples_s = tuple(slowness * sample for sample in trial.outcome.samples_s)
    conditions = replace(trial.outcome.conditions, pace=1.0 / slowness)
    return replace(
        trial, outcome=replace(trial.outcome, samples_s=samples_s, conditions=conditions)
    )


def _pair(value: object) -> tuple[int, int]:
    assert isinstance(value, tuple)
    return value[0], value[1]


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value
