"""From a request's workload to the product's: parsed and checked in full before
anything is written."""

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
    """Raises WorkloadError, with line and column for a notation and the parameter for
    an operator."""
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


class Parsed:
    """Workloads by the request they came in, the latest of many: a lookup that is asked
    500 times a second is parsed once.

    Thread-safe. A workload is immutable and depends on its request alone, so nothing
    here can grow stale.
    """

    def __init__(self, capacity: int = 2048) -> None:
        self._capacity, self._lock = capacity, Lock()
        self._known: OrderedDict[str, Workload] = OrderedDict()

    def parse(self, request: CatalogueWorkload | NotationWorkload) -> Workload:
        """As `parse`."""
        name = request.model_dump_json()
        with self._lock:
            if name in self._known:
                self._known.move_to_end(name)
                return self._known[name]
        workload = parse(request)
        with self._lock:
            self._known[name] = workload
            if len(self._known) > self._capacity:
                self._known.popitem(last=False)
        return workload


def remember(session: Session, workload: Workload) -> str:
    return workloads.remember(session, workload, to_document(workload))


def stored(session: Session, keys: Sequence[str]) -> Mapping[str, StoredWorkload]:
    """The stored workloads of these keys, in as many queries as needed."""
    unique = list(dict.fromkeys(keys))
    found: dict[str, StoredWorkload] = {}
    for start in range(0, len(unique), 1000):
        found |= workloads.get_many(session, unique[start : start + 1000])
    return found
