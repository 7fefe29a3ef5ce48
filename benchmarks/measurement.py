"""The file format of a measurement: what was measured, on which machine, when and how.

A measurement lies in `docs/measurements/<date>-<machine>-<suite>.json`, with `-2`, `-3`
and so on appended where a suite ran more than once on a machine in a day. The pages
`docs/reference/benchmarks.md` and `benchmark-history.md` are written from these files.
Figures keep their digits: `1.10` is read as a decimal number and written as `1.10`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

Value = str | int | float | Decimal | None
# What a column may be in. "" is for texts and counts, "ratio" for a quotient of two times or rates.
UNITS = frozenset(
    {
        "", "ratio", "%", "ns", "µs", "ms", "s", "GFLOP/s", "TFLOP/s", "TB/s", "bytes", "MB",
        "MiB", "MHz", "W", "1/s", "trials",
    }
)  # fmt: skip
FILE_NAME = re.compile(r"(\d{4}-\d\d-\d\d)-([a-z0-9]+)-([a-z0-9-]*[a-z])(?:-([2-9]))?\.json")


@dataclass(frozen=True, kw_only=True)
class Machine:
    key: str  # in the file's name: letters and digits
    cpu: str  # model, as far as the machine tells
    cores: int | None  # that the machine has, not those in use; None: not recorded
    target: str  # LLVM's name of the processor; of a GPU, its architecture
    about: str = ""  # caches, GPU, driver, and what is special


@dataclass(frozen=True, kw_only=True)
class Table:
    title: str  # "" where the suite's title says it all
    columns: Mapping[str, str]  # unit by name, in the order of the cells
    rows: Sequence[Sequence[Value]]  # None where nothing was measured


@dataclass(frozen=True, kw_only=True)
class Measurement:
    suite: str
    date: str  # YYYY-MM-DD
    machine: Machine
    commit: str | None  # of the code that was measured; None: not recorded
    command: str
    conditions: Sequence[str]  # a sentence each: load, budget, versions, what was verified
    tables: Sequence[Table]


class BadMeasurement(ValueError):
    """A file that is no measurement."""


def from_text(text: str) -> Measurement:
    """Raises BadMeasurement for what is none, naming the field."""
    try:
        raw = json.loads(text, parse_float=Decimal)
        measurement = Measurement(
            **{
                **raw,
                "machine": Machine(**raw["machine"]),
                "tables": [Table(**table) for table in raw["tables"]],
            }
        )
        date.fromisoformat(measurement.date)
    except (KeyError, TypeError, ValueError) as error:
        raise BadMeasurement(str(error)) from error
    for problem in _problems(measurement):
        raise BadMeasurement(problem)
    return measurement


def _problems(measurement: Measurement) -> list[str]:
    machine = measurement.machine
    required = {
        "suite": measurement.suite,
        "machine.key": machine.key,
        "machine.cpu": machine.cpu,
        "machine.target": machine.target,
        "command": measurement.command,
        "tables": measurement.tables,
    }
    problems = [f"{name} is empty" for name, value in required.items() if not value]
    for table in measurement.tables:
        unknown = sorted({*table.columns.values()} - UNITS)
        problems += [f"unknown unit {unit!r}" for unit in unknown]
        for row in table.rows:
            if len(row) != len(table.columns):
                problems.append(f"{len(row)} cells for {len(table.columns)} columns: {row!r}")
        if not table.rows:
            problems.append(f"the table {table.title!r} has no rows")
    return problems


def to_text(measurement: Measurement) -> str:
    """JSON with a row of a table per line."""
    head = asdict(measurement)
    del head["tables"]
    lines = [f"  {json.dumps(name)}: {_json(value)}," for name, value in head.items()]
    tables = ",\n".join(map(_table_text, measurement.tables))
    return "\n".join(["{", *lines, '  "tables": [', tables, "  ]", "}", ""])


def _table_text(table: Table) -> str:
    rows = ",\n".join(f"        {_json(row)}" for row in table.rows)
    return (
        f'    {{\n      "title": {_json(table.title)},\n      "columns": {_json(table.columns)},\n'
        f'      "rows": [\n{rows}\n      ]\n    }}'
    )


def _json(value: Any) -> str:
    """`json.dumps` that keeps the digits of decimal numbers."""
    if isinstance(value, Decimal):
        return cell_text(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_json(key)}: {_json(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def cell_text(value: Value) -> str:
    """A cell as it was written: digits are kept, small numbers have an exponent."""
    if isinstance(value, Decimal):
        return f"{value:e}" if value and value.adjusted() < -4 else str(value)
    return "" if value is None else str(value)


def file_name(measurement: Measurement, number: int = 1) -> str:
    """`number`: which run of the day."""
    stem = f"{measurement.date}-{measurement.machine.key}-{measurement.suite}"
    return f"{stem}-{number}.json" if number > 1 else f"{stem}.json"


def read_all(folder: Path) -> dict[str, Measurement]:
    """By file name, oldest first, runs of a day in their order. Raises BadMeasurement."""
    measurements = {}
    for path in sorted(folder.glob("*.json"), key=lambda path: path.stem):
        try:
            measurements[path.name] = from_text(path.read_text("utf-8"))
        except BadMeasurement as error:
            raise BadMeasurement(f"{path}: {error}") from error
    return dict(sorted(measurements.items(), key=lambda item: (item[1].date, _run(item[0]))))


def _run(name: str) -> int:
    match = FILE_NAME.fullmatch(name)
    return int(match[4] or 1) if match else 1


def this_machine(target: str, cpu: str) -> Machine:
    """The machine that runs this. `target` is LLVM's name of the processor."""
    key = re.sub(r"[^a-z0-9]", "", target.lower().replace("znver", "zen")) or "unknown"
    return Machine(key=key, cpu=cpu, cores=os.cpu_count() or 1, target=target)


def current_commit() -> str | None:
    """The commit of the checkout that holds this file; None outside of one. Uncommitted
    changes are marked by a plus."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    try:
        commit = git("rev-parse", "--short=10", "HEAD")
        return f"{commit}+" if git("status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, subprocess.CalledProcessError):
        return None
