"""Recorded tables of trials, and their files.

A file is an `.npz` without pickles. Its arrays:

- `header`: UTF-8 JSON as bytes, with schema, name, workload, target, default_median_s,
  kinds of failures, sketches with their knobs' names and values, and notes
- `points`: (n, knobs) int16
- `outcome`: (n,) uint8; 0 is timed, k is the k-th kind of failure in the header
- `median_s`: (timed rows,) float64, in the order of the rows
- `features`: (n, F) float32, where they were recorded
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.cost_model.encoding import KnobEncoding
from tuner.cost_model.model import Features, Featurizer
from tuner.errors import UsageError
from tuner.measure.outcome import Conditions, Failed, FailureKind, Outcome, Timed
from tuner.search.domain import Domain
from tuner.spaces.core.space import Combination, Knob, Points, Space

SCHEMA = 1
# Infrastructure failures are measured again before a table is recorded.
_KINDS = tuple(kind for kind in FailureKind if kind is not FailureKind.INFRASTRUCTURE)
_MOST_BYTES = 1 << 28  # of one array; a table of 4,000 points with 200 features takes 3 MB
# What zipfile and the fields of a damaged file raise. RuntimeError is that of an encrypted
# member, of an unknown compression and of nesting that is too deep.
_FAULTS = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    OverflowError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
TARGET_SHARE = 0.005  # "among the fastest 0.5%"


@dataclass(frozen=True, kw_only=True)
class RecordedTable:
    """The outcomes of all points of a space, or of some. Raises UsageError if damaged."""

    name: str  # for people, e.g. the workload's spec
    workload: Mapping[str, Any]  # its document
    target: str  # name of the machine it was measured on
    space: Space  # the knobs and values that were measured
    points: Points  # (n, knobs), each once
    outcomes: NDArray[np.uint8]  # (n,): 0 timed, k the k-th of the recorded kinds of failures
    median_s: NDArray[np.float64]  # (timed rows,), in the order of their rows
    default_median_s: float  # of the default schedule
    features: Features | None = None  # (n, F)
    notes: Mapping[str, str] = field(default_factory=dict)  # date, versions, conditions

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise UsageError(f"table {self.name!r} is damaged: {problem}; record it again")
        inside = (self.points >= 0) & (self.points < self.space.cardinalities)
        if not inside.all() or not np.array_equal(self.points, self.space.canonical(self.points)):
            raise UsageError(
                f"table {self.name!r} is damaged: it has points outside its own space; "
                f"record it again"
            )

    def _problems(self) -> Iterator[str]:
        """What is wrong with the shapes and values of the arrays."""
        count, knobs = len(self.points), len(self.space.knobs)
        timed = int((self.outcomes == 0).sum())
        if self.points.ndim != 2 or self.points.shape[1] != knobs:
            yield f"points have shape {self.points.shape}, the space has {knobs} knobs"
        if len(self.outcomes) != count:
            yield f"{len(self.outcomes)} outcomes for {count} points"
        if (self.outcomes > len(_KINDS)).any():
            highest = int(self.outcomes.max())
            yield f"outcome codes up to {highest}, known are 0 to {len(_KINDS)}"
        if len(self.median_s) != timed:
            yield f"{len(self.median_s)} times for {timed} timed rows"
        if not (np.isfinite(self.median_s) & (self.median_s > 0)).all():
            yield "times that are not positive and finite"
        if not 0 < self.default_median_s < float("inf"):
            yield f"a default time of {self.default_median_s}"
        if not len(self.median_s):
            yield "no timed row"
        if self.features is not None and len(self.features) != count:
            yield f"features for {len(self.features)} of {count} points"

    def domain(self) -> Domain:
        """The points that a search may propose: the whole space, or the recorded rows of it."""
        return Domain(self.space, None if len(self.points) == self.space.size else self.points)

    def featurizer(self) -> Featurizer:
        """The recorded features, or an encoding of the knobs where none were recorded."""
        if self.features is None:
            return KnobEncoding(self.space)
        return _RecordedFeatures(Domain(self.space), self.points, self.features)

    def outcome(self, row: int) -> Outcome:
        """The outcome of a row, marked as recorded."""
        code = int(self.outcomes[row])
        if code:
            return Failed(
                kind=_KINDS[code - 1],
                message=f"{_KINDS[code - 1]} when the table {self.name!r} was recorded",
            )
        seconds = float(self.median_s[int(np.count_nonzero(self.outcomes[:row] == 0))])
        return recorded_time(seconds)

    @property
    def optimum_s(self) -> float:
        """Seconds of the fastest row."""
        return float(self.median_s.min())

    @property
    def good_s(self) -> float:
        """The slowest time among the fastest `TARGET_SHARE` of all rows."""
        return self.among_fastest_s(TARGET_SHARE)

    def among_fastest_s(self, share: float) -> float:
        """The slowest time among the fastest `share` of all rows, 0 < share <= 1.

        At least one row counts as fast.
        """
        count = min(len(self.median_s), ceil(share * len(self.points)))
        return float(np.sort(self.median_s)[count - 1])


class _RecordedFeatures:
    """A `Featurizer` that looks up recorded features by point."""

    def __init__(self, domain: Domain, points: Points, features: Features) -> None:
        self._domain = domain
        keys = domain.keys(points)
        order = np.argsort(keys, kind="stable")
        self._keys, self._features = keys[order], features[order]

    def __call__(self, points: Points) -> Features:
        return self._features[np.searchsorted(self._keys, self._domain.keys(points))]


def recorded_time(seconds: float) -> Timed:
    """A time of a table. Its lane, isolation and artifact say "recorded"."""
    conditions = Conditions(lane="recorded", isolation="recorded")
    return Timed(
        samples_s=(seconds,), max_rel_error=0.0, conditions=conditions, artifact="recorded"
    )


def outcome_codes(outcomes: Sequence[Outcome]) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Codes, shape (n,), and times, shape (timed rows,), of a table's rows.

    Raises UsageError for an infrastructure failure: it must be measured again first.
    """
    codes = np.zeros(len(outcomes), np.uint8)
    times: list[float] = []
    for row, outcome in enumerate(outcomes):
        match outcome:
            case Timed() as timed:
                times.append(timed.median_s)
            case Failed(kind=FailureKind.INFRASTRUCTURE, message=message):
                raise UsageError(
                    f"row {row} was lost to infrastructure ({message}); measure it again before "
                    f"recording the table"
                )
            case Failed(kind=kind):
                codes[row] = _KINDS.index(kind) + 1
    return codes, np.array(times, np.float64)


def write_table(path: Path, table: RecordedTable) -> None:
    """Writes the table to an `.npz` file."""
    header = {
        "schema": SCHEMA,
        "name": table.name,
        "workload": dict(table.workload),
        "target": table.target,
        "default_median_s": table.default_median_s,
        "kinds": [str(kind) for kind in _KINDS],
        "sketches": [
            {
                "name": sketch.name,
                "knobs": [
                    {"name": knob.name, "values": list(knob.values)} for knob in sketch.knobs
                ],
            }
            for sketch in table.space.combinations
        ],
        "notes": dict(table.notes),
    }
    arrays: dict[str, NDArray[Any]] = {
        "header": np.frombuffer(json.dumps(header, sort_keys=True).encode(), np.uint8),
        "points": table.points.astype(np.int16),
        "outcome": table.outcomes.astype(np.uint8),
        "median_s": table.median_s.astype(np.float64),
    }
    if table.features is not None:
        arrays["features"] = table.features.astype(np.float32)
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def read_table(path: Path) -> RecordedTable:
    """The table in an `.npz` file.

    Raises UsageError for a file that is no table of this schema, or a damaged one.
    """
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            arrays = {Path(name).stem: _array(archive, name) for name in archive.namelist()}
        header = json.loads(arrays["header"].tobytes())
        if header["schema"] != SCHEMA:
            raise UsageError(
                f"{path} has table schema {header['schema']}, this version reads {SCHEMA}; "
                f"record it again"
            )
        kinds = [FailureKind(kind) for kind in header["kinds"]]
        translation = np.array([0, *(_KINDS.index(kind) + 1 for kind in kinds)], np.uint8)
        return RecordedTable(
            name=header["name"],
            workload=header["workload"],
            target=header["target"],
            space=_space(header["sketches"]),
            points=arrays["points"].astype(np.int32),
            outcomes=translation[arrays["outcome"]],
            median_s=arrays["median_s"],
            default_median_s=header["default_median_s"],
            features=arrays.get("features"),
            notes=header["notes"],
        )
    except _FAULTS as error:
        raise UsageError(
            f"{path} is not a recorded table: {error}; `tuner replay` reads the .npz files this "
            f"version writes"
        ) from error


def _array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """An array of the archive. One above the size limit is refused before it is allocated."""
    if archive.getinfo(name).file_size > _MOST_BYTES:
        raise ValueError(
            f"{name} would take {archive.getinfo(name).file_size} bytes, at most "
            f"{_MOST_BYTES} are read"
        )
    with archive.open(name) as member:
        try:
            array: NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
        # NumPy evaluates the header as a literal and raises nearly any error.
        except Exception as error:
            raise ValueError(f"{name} is damaged") from error
        return array


def _space(sketches: Sequence[Mapping[str, Any]]) -> Space:
    """The space that a header describes."""
    return Space(
        tuple(
            Combination(
                name=sketch["name"],
                knobs=tuple(
                    Knob(
                        name=knob["name"],
                        values=tuple(
                            tuple(v) if isinstance(v, list) else v for v in knob["values"]
                        ),
                    )
                    for knob in sketch["knobs"]
                ),
            )
            for sketch in sketches
        )
    )
