"""Parses the workloads of requests, completely and before anything is written."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock

from tuner.api.schemas import CatalogueWorkload, NotationWorkload
from tuner.db import workloads
from tuner.db.engine import Session
from tuner.db.workloads import StoredWorkload
from tuner.errors import WorkloadError
from tuner.workload.spec import to_document, workload_from_notation, workload_from_params
from tuner.workload.workload import Workload


def parse(request: CatalogueWorkload | NotationWorkload) -> Workload:
    """The workload of a request.

    Raises WorkloadError, with line and column for a notation and the parameter for an
    operator.
    """
    if isinstance(request, NotationWorkload):
        return workload_from_notation(
            request.notation, request.shapes, request.constants, request.numerics
        )
    for name, value in request.params.items():
        if isinstance(value, str) and ".." in value:
            message = (
                f"{name}={value} is a range; only the commands tune and export take "
                f"ranges; here give one number"
            )
            raise WorkloadError(message, parameter=name)
    return workload_from_params(request.op, request.params)


class ParsedWorkloads:
    """A cache of recent workloads by their requests, so that repeated lookups parse once.

    Thread-safe. A workload is immutable and depends on its request alone, so that no
    entry becomes stale.
    """

    def __init__(self, capacity: int = 2048) -> None:
        self._capacity = capacity
        self._lock = Lock()
        self._workloads: OrderedDict[str, Workload] = OrderedDict()

    def parse(self, request: CatalogueWorkload | NotationWorkload) -> Workload:
        """The workload of a request, see `parse`."""
        name = request.model_dump_json()
        with self._lock:
            if name in self._workloads:
                self._workloads.move_to_end(name)
                return self._workloads[name]
        workload = parse(request)
        with self._lock:
            self._workloads[name] = workload
            if len(self._workloads) > self._capacity:
                self._workloads.popitem(last=False)
        return workload


def remember(session: Session, workload: Workload) -> str:
    return workloads.remember(session, workload, to_document(workload))


def stored(session: Session, keys: Sequence[str]) -> Mapping[str, StoredWorkload]:
    """The stored workloads of these keys, in as many queries as needed."""
    unique = list(dict.fromkeys(keys))
    rows: dict[str, StoredWorkload] = {}
    for start in range(0, len(unique), 1000):
        rows |= workloads.get_many(session, unique[start : start + 1000])
    return rows
