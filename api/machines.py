"""The fleet's machines as the service and the command show them: each with what its
lanes and builders did today."""

from __future__ import annotations

from tuner.api import answers
from tuner.api.schemas import StationAnswer, WorkerAnswer
from tuner.db import lanes, workers
from tuner.db.engine import Session


def described_workers(session: Session) -> list[WorkerAnswer]:
    """All workers, with the seconds each lane and builder has spent on each kind of
    activity since midnight UTC."""
    now = session.now()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    seconds: dict[str, dict[str, dict[str, float]]] = {}
    for one in lanes.activity(session, since=midnight, until=now):
        seconds.setdefault(one.worker, {}).setdefault(one.lane, {})[one.kind] = one.seconds
    found = [answers.worker(worker, now) for worker in workers.list_all(session)]
    return [
        worker.model_copy(update={"today": _stations(seconds.get(worker.id, {}))})
        for worker in found
    ]


def _stations(seconds: dict[str, dict[str, float]]) -> list[StationAnswer]:
    return [
        StationAnswer(
            name=name,
            builds="build" in kinds,
            seconds={kind: round(kinds.get(kind, 0.0), 3) for kind in lanes.KINDS},
        )
        for name, kinds in sorted(seconds.items())
    ]
