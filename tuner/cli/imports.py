"""`tuner import`: MetaSchedule records, replayed, verified and raced on this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tuner import units
from tuner.cli.invocation import Invocation
from tuner.cli.workloads import Threads


def import_(
    context: typer.Context,
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="a MetaSchedule work_dir with its two JSON files")
    ],
    threads: Threads = None,
) -> None:
    """Replays the records of a MetaSchedule database, verifies and races them; the
    fastest right one becomes the kernel."""
    from tuner.app.machine import checked_target, with_limits
    from tuner.app.races.metaschedule import import_database

    invocation = Invocation.here(context)
    settings = invocation.settings(threads=threads).values
    machine = checked_target(settings)
    with invocation.database() as database:
        records = import_database(
            database,
            directory,
            with_limits(database, machine),
            settings,
            progress=invocation.output.note,
        )
    if invocation.output.as_json:
        invocation.output.items([asdict(record) for record in records])
        return
    rows = [
        (
            str(record.record),
            record.workload or "",
            units.seconds(record.claimed_s) if record.claimed_s else "",
            units.seconds(record.median_s) if record.median_s else "",
            record.kernel or record.reason,
        )
        for record in records
    ]
    invocation.output.table(
        ("record", "workload", "claimed", "here", "kernel"), rows, right=("claimed", "here")
    )
