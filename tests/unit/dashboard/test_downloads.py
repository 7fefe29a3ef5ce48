"""Trials as files: what stands in the columns of each kind."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.database_samples import failed, timed
from tuner.api.dashboard.views.downloads import COLUMNS, as_csv, as_json, as_parquet
from tuner.db.trials import StoredTrial
from tuner.measure.outcome import Trial

TEXT = "-march is unknown"  # which a spreadsheet would take for a formula


def stored(trial: Trial) -> StoredTrial:
    return StoredTrial(
        job_id="j", position=0, trial=trial, predicted=None, round=None, worker="cpu:1", attempts=1,
        quarantined=False, suspect=None, created_at=datetime(2026, 1, 2, tzinfo=UTC),
    )  # fmt: skip


TRIALS = [stored(timed(0, 2e-3)), stored(failed(1, TEXT))]


def read_parquet(content: bytes) -> tuple[list[str], list[dict[str, Any]]]:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(io.BytesIO(content))
    return table.column_names, table.to_pylist()


def test_all_kinds_hold_the_same() -> None:
    items = json.loads("".join(as_json(iter([TRIALS]))))["items"]
    lines = list(csv.DictReader(io.StringIO("".join(as_csv(iter([TRIALS[:1], TRIALS[1:]]))))))
    names, rows = read_parquet(b"".join(as_parquet(iter([TRIALS[:1], TRIALS[1:]]))))
    assert names == [*lines[0]] == list(COLUMNS) and {*items[0]} == {*COLUMNS}
    for item, line, row in zip(items, lines, rows, strict=True):
        assert row["number"] == int(line["number"]) == item["number"]
        assert row["median_s"] == item["median_s"] == (float(line["median_s"] or 0) or None)
        assert json.loads(row["config"]) == json.loads(line["config"]) == item["config"]
    # Only a spreadsheet's file has an apostrophe before what looks like a formula.
    assert (items[1]["error"], rows[1]["error"], lines[1]["error"]) == (TEXT, TEXT, f"'{TEXT}")


def test_nothing_has_its_columns() -> None:
    assert json.loads("".join(as_json(iter([()])))) == {"items": [], "next": None}
    assert "".join(as_csv(iter([()]))).strip() == ",".join(COLUMNS)
    assert read_parquet(b"".join(as_parquet(iter([()])))) == (list(COLUMNS), [])
