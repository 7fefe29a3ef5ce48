"""Schedules of promoted kernels for TVM users, as TVMScript or a MetaSchedule database."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from tuner.db import kernels, targets
from tuner.db.engine import Database
from tuner.db.kernels import Kernel
from tuner.errors import UsageError
from tuner.export.directory import place
from tuner.lowering.metaschedule import Record, database, scheduled_script
from tuner.lowering.schedule import StoredSchedule

Format = Literal["metaschedule", "tvmscript"]
FORMATS: tuple[Format, ...] = ("metaschedule", "tvmscript")


def export_schedules(
    source: Database, chosen: Sequence[Kernel], directory: Path, form: Format
) -> tuple[str, ...]:
    """Writes the kernels' schedules into a new or empty directory; returns the files' names.

    `metaschedule` gives the two files of a MetaSchedule work_dir, `tvmscript` a file for
    each kernel, named after its id. Raises ExportRefused for a directory that is not
    free, ExportError where it cannot be written, UsageError without kernels.
    """
    if not chosen:
        raise UsageError("no kernels to export; tune one first")
    records = [(kernel, _record(source, kernel)) for kernel in chosen]
    if form == "metaschedule":
        files = database([record for _, record in records])
    else:
        files = {
            f"{kernel.id}.py": scheduled_script(record.schedule).encode()
            for kernel, record in records
        }
    place(directory, files)
    return tuple(sorted(files))


def _record(source: Database, kernel: Kernel) -> Record:
    with source.read() as session:
        document = kernels.schedule(session, kernel.id)
        target = targets.get(session, kernel.target)
    return Record(
        schedule=stored_schedule(document),
        symbol=str(document["symbol"]),
        target=target.tvm,
        threads=kernel.threads,
        median_s=kernel.median_s,
    )


def stored_schedule(document: Any) -> StoredSchedule:
    """The schedule in a kernel's stored document."""
    return StoredSchedule(
        module=document["module"],
        trace=document["trace"],
        text=document["text"],
        versions=document["versions"],
        prepack=document.get("prepack"),
    )
