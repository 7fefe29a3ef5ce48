"""`tuner workers` and `tuner health`: the machines that measure, and the service's state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from tuner import units
from tuner.cli import documents
from tuner.cli.invocation import Invocation


def workers(context: typer.Context) -> None:
    """Lists the machines that build and measure: state, lanes, versions, and what each
    lane and builder did today."""
    invocation = Invocation.of(context)
    with invocation.fleet() as fleet:
        listed = fleet.workers()
    if invocation.output.as_json:
        invocation.output.items([documents.worker(worker) for worker in listed])
        return
    if not listed:
        invocation.output.note(
            "no machine has measured yet; tuner tune, tuner serve and tuner worker make this "
            "one known"
        )
    rows = [
        (
            worker.id,
            worker.host,
            worker.state + (f": {worker.reason}" if worker.reason else ""),
            f"{units.duration(worker.heartbeat_age_s)} ago",
            ", ".join(_lane(lane) for lane in worker.lanes),
            worker.isolation or units.DASH,
            (worker.target or units.DASH)[:12],
            " ".join(f"{name} {version}" for name, version in sorted(worker.versions.items())),
        )
        for worker in listed
    ]
    columns = ("worker", "host", "state", "heard of", "lanes", "isolation", "target", "versions")
    invocation.output.table(columns, rows)
    slots = [(worker.id, slot) for worker in listed for slot in worker.today]
    if slots:
        invocation.output.line()
        kinds = tuple(slots[0][1].seconds)
        spent = [
            (
                worker,
                f"{slot.name} (builder)" if slot.builds else slot.name,
                *(
                    units.duration(slot.seconds[kind]) if slot.seconds[kind] else units.DASH
                    for kind in kinds
                ),
                units.percent(in_use(slot.seconds)),
            )
            for worker, slot in slots
        ]
        headings = ("worker", "today", *kinds, "in use")
        invocation.output.table(headings, spent, right=headings[2:])


def in_use(seconds: Mapping[str, float]) -> float | None:
    """The share of a lane's time in which candidates held it.

    None for a builder, whose idle time is not recorded.
    """
    held = seconds.get("time", 0.0) + seconds.get("check", 0.0)
    total = held + seconds.get("idle", 0.0)
    return held / total if total else None


def health(context: typer.Context) -> None:
    """Says whether the service can serve, or the database answers; exit code 1 or 2
    where it does not."""
    invocation = Invocation.of(context)
    with invocation.fleet() as fleet:
        answer = fleet.health()
    if invocation.output.as_json:
        invocation.output.document({"status": answer.status, "version": answer.version})
    else:
        invocation.output.line(f"{answer.status}, version {answer.version}")


def _lane(lane: Any) -> str:
    cores = lane.get("cores") if isinstance(lane, dict) else None
    return f"{lane.get('name')} ({','.join(map(str, cores))})" if cores else str(lane)
