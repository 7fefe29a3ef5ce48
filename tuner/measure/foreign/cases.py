"""Inputs of timed calls, of which no process meets any twice.

The seeds are secret, drawn for each examination. So nothing can be kept from one call for
another, and what is timed is what is checked.
"""

from __future__ import annotations

import secrets
import time

import numpy as np

from tuner.measure.check import Case
from tuner.measure.problem import Problem
from tuner.workload.workload import Workload

TIMED_ROUNDS = 4  # of each process; one before them warms up
MOST_SLOTS = 64  # calls of a round
TIMED_CASES = ("normal", "positive")  # in turn
MAKING_S = 4.0  # spent on inputs and references of timed calls, beyond the least number
HELD_BYTES = 1 << 30  # of these inputs and references


class TimedCases:
    """Cases for the rounds of a workload's timed calls. Not thread-safe; close them."""

    def __init__(self, workload: Workload, slots: int) -> None:
        """`slots`: calls of a round, at most."""
        self._workload, self._most_slots = workload, slots
        self._cases: list[Case] = []
        self._problems: list[Problem] = []

    def make(self) -> None:
        """Make the cases, once: as many as the rounds take, or time and memory allow.

        Raises MemoryError.
        """
        if self._cases:
            return
        begun_s = time.monotonic()
        wished = (1 + TIMED_ROUNDS) * self._most_slots
        while len(self._cases) < wished:
            self._problems.append(Problem(self._workload, secrets.randbits(62)))
            self._cases += self._problems[-1].cases((TIMED_CASES[len(self._cases) % 2],))
            if len(self._cases) > TIMED_ROUNDS:
                over = time.monotonic() - begun_s > MAKING_S
                if over or sum(map(_held_bytes, self._cases)) > HELD_BYTES:
                    break

    def rounds(self) -> list[list[Case]]:
        """The cases in a new random order, as many to each round. The first one warms up."""
        rng = np.random.default_rng(secrets.randbits(128))
        order = [int(place) for place in rng.permutation(len(self._cases))]
        slots = max(1, min(self._most_slots, len(order) // (1 + TIMED_ROUNDS)))
        return [
            [self._cases[place] for place in order[first : first + slots]]
            for first in range(0, len(order) - slots + 1, slots)
        ]

    def close(self) -> None:
        for problem in self._problems:
            problem.close()


def slots_within(cached_bytes: int, call_bytes: int) -> int:
    """The calls of a round whose buffers together take so many bytes of a cache."""
    return max(1, min(MOST_SLOTS, cached_bytes // max(call_bytes, 1)))


def _held_bytes(case: Case) -> int:
    inputs = sum(2 * array.nbytes for array in case.pristine)
    return inputs + sum(2 * expected.reference.nbytes for expected in case.expected)
