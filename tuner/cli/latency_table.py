"""Estimates as a table in a file: JSON, CSV, or Parquet if pyarrow is installed."""

from __future__ import annotations

import csv
import importlib
import importlib.util
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tuner.cli.output_file import check_output, write_output
from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.api.estimate_schemas import EstimatesAnswer

SUFFIXES = (".json", ".csv", ".parquet")


class _Row(NamedTuple):
    workload: str  # its key
    spec: str | None
    target: str  # its key
    threads: int
    calls: int
    median_s: float
    low_s: float
    high_s: float
    source: str
    disturbed: bool


def check_table(path: Path) -> None:
    """Raises UsageError for a file of another kind or that cannot be written, or Parquet
    without pyarrow."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path} is no table; its name ends in one of {', '.join(SUFFIXES)}")
    if path.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise UsageError(f"{path} needs pyarrow (pip install pyarrow); or give .json or .csv")
    check_output(path)


def write_table(path: Path, answer: EstimatesAnswer, calls: Sequence[int]) -> None:
    """A row for each workload. Raises UsageError where the file cannot be written."""
    write_output(path, _content(path.suffix, _rows(answer, calls)))


def _rows(answer: EstimatesAnswer, calls: Sequence[int]) -> list[_Row]:
    return [
        _Row(
            workload=item.workload.key,
            spec=item.workload.spec,
            target=answer.target.key,
            threads=answer.threads,
            calls=count,
            median_s=item.median_s,
            low_s=item.low_s,
            high_s=item.high_s,
            source=item.source,
            disturbed=item.disturbed,
        )
        for item, count in zip(answer.items, calls, strict=True)
    ]


def _content(suffix: str, rows: Sequence[_Row]) -> bytes:
    if suffix == ".json":
        return (json.dumps({"items": [row._asdict() for row in rows]}, indent=1) + "\n").encode()
    if suffix == ".csv":
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(_Row._fields)
        writer.writerows(rows)
        return text.getvalue().encode()
    arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    columns = {name: [getattr(row, name) for row in rows] for name in _Row._fields}
    buffer = io.BytesIO()
    parquet.write_table(arrow.table(columns), buffer)
    return buffer.getvalue()
