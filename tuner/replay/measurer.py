"""A measurer that answers from a recorded table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from tuner.errors import UsageError
from tuner.measure.outcome import Candidate, Outcome, Trial
from tuner.replay.table import RecordedTable, recorded_time
from tuner.search.domain import Domain


class ReplayMeasurer:
    """A `Measurer` that answers from a table, at once and in the order submitted.

    Its times were measured another day. So `recorded` is true, and each outcome's lane
    and artifact say "recorded": none can pass for a measurement or be promoted.
    """

    recorded: Literal[True] = True

    def __init__(self, table: RecordedTable, *, capacity: int = 2) -> None:
        self._table, self._capacity = table, capacity
        self._domain = Domain(table.space)
        self._rows = {key: row for row, key in enumerate(self._domain.keys(table.points).tolist())}
        self._waiting: list[Candidate] = []

    @property
    def capacity(self) -> int:
        return self._capacity

    def submit(self, candidates: Sequence[Candidate]) -> None:
        self._waiting += candidates

    def results(self, *, timeout_s: float) -> Iterator[Trial]:
        while self._waiting:
            candidate = self._waiting.pop(0)
            yield Trial(
                number=candidate.number, config=candidate.config, outcome=self._answer(candidate)
            )

    def close(self) -> None:
        self._waiting.clear()

    def _answer(self, candidate: Candidate) -> Outcome:
        """Raises UsageError for a config that is not in the table."""
        if not candidate.config:
            return recorded_time(self._table.default_median_s)
        key = int(self._domain.keys(self._table.space.point(candidate.config)[None, :])[0])
        if key not in self._rows:
            raise UsageError(
                f"table {self._table.name!r} has no config {dict(candidate.config)}; search its "
                f"own domain only"
            )
        return self._table.outcome(self._rows[key])
