"""The log of a recording: one line of JSON per measured config.

A stopped recording goes on from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import UsageError
from tuner.measure.assignment import outcome_from_document, outcome_to_document
from tuner.measure.outcome import Outcome

DEFAULT_ROW = -1  # of the default schedule, which is no point of the space


@dataclass(frozen=True, kw_only=True)
class RecordingLog:
    path: Path
    about: Mapping[str, Any]  # what all rows belong to; another one cannot be continued

    def load(self) -> tuple[dict[int, Outcome], set[int]]:
        """Outcomes by row, the latest of each, and the rows that were timed again.

        A line cut short by a crash is ignored. Writes the heading of a new log. Raises
        UsageError for the log of another recording.
        """
        if not self.path.exists():
            self.path.write_text(self._heading + "\n")
            return {}, set()
        heading, *lines = self.path.read_text().splitlines() or [""]
        if heading != self._heading:
            raise UsageError(
                f"{self.path} records another workload, target or lattice; move it away or give "
                f"another --output"
            )
        outcomes: dict[int, Outcome] = {}
        again: set[int] = set()
        for line in lines:
            try:
                row = json.loads(line)
                outcomes[int(row["row"])] = outcome_from_document(row["outcome"])
                again |= {int(row["row"])} if row["again"] else set()
            except (ValueError, KeyError, TypeError):
                continue
        return outcomes, again

    @property
    def _heading(self) -> str:
        return json.dumps(self.about, sort_keys=True)

    def append(self, row: int, outcome: Outcome, *, again: bool = False) -> None:
        with self.path.open("a") as file:
            file.write(
                json.dumps({"row": row, "again": again, "outcome": outcome_to_document(outcome)})
                + "\n"
            )
