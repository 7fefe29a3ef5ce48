"""The T4 format, in which the auto-tuning community shares results: written and read.

A JSON document with one entry for each config that was tried. Its schema is
github.com/odgaard/TuningSchema (results-schema.json, version 1.0.0); Kernel Tuner writes
it too, with times in milliseconds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

import numpy as np

from tuner.errors import UsageError
from tuner.measure.outcome import Failed, FailureKind, Outcome, Timed
from tuner.replay.table import RecordedTable, outcome_codes, recorded_time
from tuner.spaces.core.space import Combination, Knob, Space

VERSION = "1.0.0"
MOST_BYTES = 1 << 28  # of a file that is read
# What reading a document of another form raises; numbers may be infinite.
_FAULTS = (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
CORRECT = "correct"  # its word for a config that was measured
_WORDS: Mapping[FailureKind, str] = MappingProxyType(
    {
        FailureKind.ILLEGAL_SCHEDULE: "constraints",
        FailureKind.BUILD_ERROR: "compile",
        FailureKind.BUILD_TIMEOUT: "compile",
        FailureKind.WRONG_ANSWER: "correctness",
        FailureKind.RUN_TIMEOUT: "timeout",
        FailureKind.RUN_CRASH: "runtime",
        FailureKind.OUT_OF_MEMORY: "runtime",
        FailureKind.IMPLAUSIBLE: "runtime",
        FailureKind.INFRASTRUCTURE: "runtime",
    }
)
# What a word is read as.
_KINDS: Mapping[str, FailureKind] = MappingProxyType(
    {
        "constraints": FailureKind.ILLEGAL_SCHEDULE,
        "compile": FailureKind.BUILD_ERROR,
        "correctness": FailureKind.WRONG_ANSWER,
        "timeout": FailureKind.RUN_TIMEOUT,
        "runtime": FailureKind.RUN_CRASH,
    }
)
_SECONDS = MappingProxyType({"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9})
_UNITS = MappingProxyType({"seconds": "s", "milliseconds": "ms", "microseconds": "us"})
_SKETCH = "all"  # the only sketch of a space that T4 describes


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A trial, as it is written."""

    config: Mapping[str, Any]
    outcome: str  # "ok" or a kind of failure
    median_s: float | None
    build_s: float
    measure_s: float
    created_at: datetime


def t4_document(results: Sequence[Result]) -> Mapping[str, Any]:
    """The results of one workload as a T4 document, with times in seconds."""
    return {
        "schema_version": VERSION,
        "metadata": {"timeunit": "seconds"},
        "results": [_written(result) for result in results],
    }


def _written(result: Result) -> Mapping[str, Any]:
    timed = result.outcome == "ok" and result.median_s is not None
    word = CORRECT if timed else _WORDS[FailureKind(result.outcome)]
    times = [result.median_s] if timed else []
    return {
        "timestamp": result.created_at.isoformat(),
        "configuration": dict(result.config),
        "times": {
            "compilation_time": result.build_s,
            "benchmark_time": result.measure_s,
            "runtimes": times,
        },
        "invalidity": word,
        "correctness": 0 if word == "correctness" else 1,
        "measurements": [{"name": "time", "value": value, "unit": "s"} for value in times],
        "objectives": ["time"],
    }


def read_t4(path: Path) -> RecordedTable:
    """A T4 file as a table: every parameter a knob, with the values that were tried.

    A config that was tried twice counts as the first time. The table's default time is that
    of a config without parameters, else the median of all. All others must have the same
    parameters. Raises UsageError for what is no T4 file with a measured config.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES} bytes")
        document = json.loads(path.read_text("utf-8"))
        unit = _UNITS.get(document.get("metadata", {}).get("timeunit", ""), "ms")
        rows = dict(_rows(document["results"], unit))
        return _table(path.stem, rows)
    except _FAULTS as error:
        raise UsageError(f"{path} is no T4 file of auto-tuning results: {error}") from error


Row = tuple[tuple[str, Any], ...]  # a config, its parameters in the order of their names


def _rows(results: Sequence[Mapping[str, Any]], unit: str) -> Iterator[tuple[Row, Outcome]]:
    """The last result first, so that a dictionary keeps the first of each config."""
    for result in reversed(results):
        config = tuple(
            (name, tuple(value) if isinstance(value, list) else value)
            for name, value in sorted(result["configuration"].items())
        )
        yield config, _outcome(result, unit)


def _outcome(result: Mapping[str, Any], unit: str) -> Outcome:
    word = result["invalidity"]
    if word != CORRECT:
        return Failed(kind=_KINDS[word], message=word)
    objective = (result.get("objectives") or ["time"])[0]
    for measurement in result.get("measurements", ()):
        if measurement["name"] == objective:
            scale = _SECONDS[measurement.get("unit") or unit]
            seconds = float(measurement["value"]) * scale
            if not (math.isfinite(seconds) and seconds > 0):
                return Failed(kind=FailureKind.RUN_CRASH, message=f"its {objective} is {seconds}")
            return recorded_time(seconds)
    raise ValueError(f"a correct config has no measurement {objective!r}")


def _table(name: str, rows: dict[Row, Outcome]) -> RecordedTable:
    default = rows.pop((), None)  # of the default schedule, which has no parameters
    names = {tuple(parameter for parameter, _ in config) for config in rows}
    if len(names) != 1:
        raise ValueError(f"its configs have {len(names)} different sets of parameters, not one")
    (parameters,) = names
    configs = list(reversed(rows))
    values = [
        sorted({config[column][1] for config in configs}, key=_order)
        for column in range(len(parameters))
    ]
    index = [{value: place for place, value in enumerate(column)} for column in values]
    points = [
        [0, *(index[column][config[column][1]] for column in range(len(parameters)))]
        for config in configs
    ]
    outcomes, times = outcome_codes([rows[config] for config in configs])
    if not len(times):
        raise ValueError("no config in it was measured")
    knobs = tuple(
        Knob(name=parameter, values=tuple(column))
        for parameter, column in zip(parameters, values, strict=True)
    )
    return RecordedTable(
        name=name,
        workload={"name": name},
        target="as recorded",
        space=Space((Combination(name=_SKETCH, knobs=knobs),)),
        points=np.array(points, np.int32),
        outcomes=outcomes,
        median_s=times,
        default_median_s=default.median_s if isinstance(default, Timed) else median(times.tolist()),
    )


def _order(value: Any) -> tuple[str, Any]:
    """Numbers by size; other values by their text."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return ("", value) if plain else (type(value).__name__, str(value))
