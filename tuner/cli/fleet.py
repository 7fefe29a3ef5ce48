"""`tuner workers` and `health`: which machines measure, and whether all is well."""

from __future__ import annotations

from typing import Any

import typer

from tuner.cli import documents, units
from tuner.cli.invocation import Invocation


def workers(context: typer.Context) -> None:
    """Lists the machines that build and measure, with their state, their lanes and when they were last heard of."""
    invocation = Invocation.of(context)
    with invocation.fleet() as fleet:
        found = fleet.workers()
    if invocation.output.as_json:
        invocation.output.items([documents.worker(one) for one in found])
        return
    if not found:
        invocation.output.note("no machine has measured yet; tuner tune, tuner serve and tuner worker make this one known")
    rows = [
        (
            one.id,
            one.host,
            one.state + (f": {one.reason}" if one.reason else ""),
            f"{units.duration(one.heartbeat_age_s)} ago",
            ", ".join(_lane(lane) for lane in one.lanes),
            one.isolation or "-",
        )
        for one in found
    ]
    invocation.output.table(("worker", "host", "state", "heard of", "lanes", "isolation"), rows)


def health(context: typer.Context) -> None:
    """Says whether the service can serve, or the database answers; exit code 1 or 2 where it does not."""
    invocation = Invocation.of(context)
    with invocation.fleet() as fleet:
        found = fleet.health()
    if invocation.output.as_json:
        invocation.output.document({"status": found.status, "version": found.version})
    else:
        invocation.output.line(f"{found.status}, version {found.version}")


def _lane(lane: Any) -> str:
    cores = lane.get("cores") if isinstance(lane, dict) else None
    return f"{lane.get('name')} ({','.join(map(str, cores))})" if cores else str(lane)
