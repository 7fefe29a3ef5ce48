"""What a run has found so far, a line for each workload, so that it can be cut short."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """A workload's search: what is worth a race, with its library."""

    spec: str
    seconds: tuple[float | None, ...]  # of its candidates, None for a failure
    finalists: tuple[dict[str, Any], ...]  # `Finalist`s, the first candidate first


@dataclass(frozen=True, slots=True, kw_only=True)
class Raced:
    """A workload's races on a quiet machine, by number of the candidate."""

    spec: str
    rounds_s: dict[str, list[float]]  # the median of each process
    paces: dict[str, list[float | None]]  # of the core in it, beside its usual one

    @property
    def median_s(self) -> dict[str, float]:
        return {name: median(rounds) for name, rounds in self.rounds_s.items()}

    @property
    def count(self) -> int:
        """Rounds of whoever had most."""
        return max(map(len, self.rounds_s.values()), default=0)

    def ci95_s(self, name: str) -> tuple[float, float]:
        """The extremes of the rounds."""
        return min(self.rounds_s[name]), max(self.rounds_s[name])


def append(path: Path, entry: Searched | Raced) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(entry)) + "\n")


def searches(path: Path) -> dict[str, Searched]:
    return {row["spec"]: Searched(**row) for row in _rows(path)}


def races(path: Path) -> dict[str, Raced]:
    """The rounds of all races of a workload together."""
    merged: dict[str, Raced] = {}
    for row in _rows(path):
        race = merged.setdefault(row["spec"], Raced(spec=row["spec"], rounds_s={}, paces={}))
        for name in row["rounds_s"]:
            race.rounds_s.setdefault(name, []).extend(row["rounds_s"][name])
            race.paces.setdefault(name, []).extend(row["paces"][name])
    return merged


def _rows(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]
