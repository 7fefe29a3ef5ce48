"""Downloads of the selected trials: CSV, JSON, or Parquet if pyarrow is installed.

The file is sent while the trials are read.
"""

from __future__ import annotations

import csv
import importlib
import importlib.util
import io
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from tuner.api import answers
from tuner.api.dashboard.job_view import load
from tuner.api.dashboard.pages import PageRoute
from tuner.api.dashboard.sessions import Viewer
from tuner.api.dashboard.trial_table import FilterQuery, of_task, selection, within
from tuner.api.dashboard.views.job import TaskQuery
from tuner.api.problems import Problem
from tuner.api.routes.jobs import JobId
from tuner.api.service import Service, ServiceDep
from tuner.db import trial_pages
from tuner.db.trial_pages import Sort, TrialFilter
from tuner.db.trials import StoredTrial
from tuner.errors import UsageError

router = APIRouter(prefix="/jobs", route_class=PageRoute)

BATCH = 1000
COLUMNS = (
    "workload", "number", "outcome", "median_s", "max_rel_error", "build_s", "measure_s",
    "predicted", "worker", "created_at",
    "config", "samples_s", "error",
)  # fmt: skip
TYPES = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "parquet": "application/vnd.apache.parquet",
}
# first characters by which spreadsheets take a text for a formula
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def has_parquet() -> bool:
    return importlib.util.find_spec("pyarrow") is not None


@router.get("/{job_id}/trials.{extension}")
def download(
    job_id: JobId,
    extension: str,
    caller: Viewer,
    service: ServiceDep,
    query: FilterQuery,
    task: TaskQuery = 0,
) -> Response:
    if extension not in TYPES:
        raise Problem(
            404, "not_found", f"trials come as {', '.join(TYPES)}, not as {extension[:20]!r}"
        )
    if extension == "parquet" and not has_parquet():
        raise Problem(404, "not_found", "Parquet needs pyarrow on the service; take CSV or JSON")
    chosen = selection(query)
    if chosen.error is not None:
        raise UsageError(chosen.error)
    with service.database.read() as session:
        chosen = within(session, load(session, job_id, caller, task), chosen)
    sort: Sort = query.sort if query.sort in trial_pages.SORTS else "number"  # type: ignore[assignment]  # just checked
    every = batches(service, job_id, of_task(chosen.where, task), sort)
    content: Iterator[str] | Iterator[bytes]
    match extension:
        case "csv":
            content = as_csv(every)
        case "json":
            content = as_json(every)
        case _:
            content = as_parquet(every)
    name = f'attachment; filename="{job_id}-trials.{extension}"'
    return StreamingResponse(
        content, media_type=TYPES[extension], headers={"Content-Disposition": name}
    )


def batches(
    service: Service, job_id: str, where: TrialFilter, sort: Sort
) -> Iterator[Sequence[StoredTrial]]:
    """The trials in batches, each of its own transaction: slow readers hold no lock."""
    cursor: str | None = None
    while True:
        with service.database.read() as session:
            page = trial_pages.list_page(
                session, job_id, where=where, sort=sort, cursor=cursor, limit=BATCH
            )
        yield page.items
        cursor = page.next
        if cursor is None:
            return


def rows(items: Sequence[StoredTrial]) -> list[dict[str, Any]]:
    return [answers.trial(trial).model_dump(mode="json", include=set(COLUMNS)) for trial in items]


def as_csv(every: Iterator[Sequence[StoredTrial]]) -> Iterator[str]:
    yield _line(lambda writer: writer.writerow(COLUMNS))
    for items in every:
        written = [[_plain(_text(row[name])) for name in COLUMNS] for row in rows(items)]
        yield _line(lambda writer, written=written: writer.writerows(written))  # type: ignore[misc]  # bound for this batch


def _line(write: Callable[[Any], object]) -> str:
    buffer = io.StringIO()
    write(csv.writer(buffer))
    return buffer.getvalue()


def _text(value: Any) -> Any:
    """A cell: structures as JSON, anything else as it is."""
    return json.dumps(value) if isinstance(value, dict | list) else value


def _plain(value: Any) -> Any:
    """A cell for spreadsheets: with an apostrophe before text that looks like a formula."""
    return "'" + value if isinstance(value, str) and value.startswith(FORMULA) else value


def as_json(every: Iterator[Sequence[StoredTrial]]) -> Iterator[str]:
    """One JSON document with all items, as lists of the API have it."""
    separator = '{"items":['
    for items in every:
        batch = rows(items)
        if batch:
            yield separator + ",\n".join(json.dumps(row) for row in batch)
            separator = ",\n"
    yield ("" if separator != '{"items":[' else separator) + '],"next":null}\n'


def as_parquet(every: Iterator[Sequence[StoredTrial]]) -> Iterator[bytes]:
    """One file, written at the end: its index needs all row groups."""
    arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    table = [row for items in every for row in rows(items)]
    columns = {name: [_text(row[name]) for row in table] for name in COLUMNS}
    buffer = io.BytesIO()
    parquet.write_table(arrow.table(columns), buffer)
    yield buffer.getvalue()
