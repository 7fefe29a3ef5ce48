"""Estimates as a table in a file: JSON, CSV, or Parquet if pyarrow is installed."""

from __future__ import annotations

import csv
import importlib
import importlib.util
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.api.estimate_schemas import EstimatesAnswer

SUFFIXES = (".json", ".csv", ".parquet")


def check_table(path: Path) -> None:
    """Raises UsageError for a file of another kind, or Parquet without pyarrow."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path} is no table; its name ends in one of {', '.join(SUFFIXES)}")
    if path.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise UsageError(f"{path} needs pyarrow (pip install pyarrow); or give .json or .csv")


def write_table(path: Path, answer: EstimatesAnswer, calls: Sequence[int]) -> None:
    """A row for each workload. Raises UsageError where the file cannot be written."""
    content = _content(path.suffix, _rows(answer, calls))
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def _rows(answer: EstimatesAnswer, calls: Sequence[int]) -> list[Mapping[str, Any]]:
    return [
        {
            "workload": item.workload.key,
            "spec": item.workload.spec,
            "target": answer.target.key,
            "threads": answer.threads,
            "calls": count,
            "median_s": item.median_s,
            "low_s": item.low_s,
            "high_s": item.high_s,
            "source": item.source,
            "disturbed": item.disturbed,
        }
        for item, count in zip(answer.items, calls, strict=True)
    ]


def _content(suffix: str, rows: Sequence[Mapping[str, Any]]) -> bytes:
    if suffix == ".json":
        return (json.dumps({"items": rows}, indent=1) + "\n").encode()
    if suffix == ".csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue().encode()
    arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    buffer = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(list(rows)), buffer)
    return buffer.getvalue()
