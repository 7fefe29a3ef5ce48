"""From a request's workload to the product's: parsed and checked in full before anything is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from api.schemas import CatalogueWorkload, NotationWorkload
from db import workloads
from db.engine import Session
from db.workloads import StoredWorkload
from tuner.errors import WorkloadError
from tuner.workload.spec import to_document, workload_from_notation, workload_from_params
from tuner.workload.workload import Workload


def parse(request: CatalogueWorkload | NotationWorkload) -> Workload:
    """Raises WorkloadError, with line and column for a notation and the parameter for an operator."""
    if isinstance(request, NotationWorkload):
        return workload_from_notation(request.notation, request.shapes, request.constants, request.numerics)
    for name, value in request.params.items():
        if isinstance(value, str) and ".." in value:
            message = f"{name}={value} is a range; ranges make a portfolio, which only export takes; here give one number"
            raise WorkloadError(message, parameter=name)
    return workload_from_params(request.op, request.params)


def remember(session: Session, workload: Workload) -> str:
    return workloads.remember(session, workload, to_document(workload))


def stored(session: Session, keys: Sequence[str]) -> Mapping[str, StoredWorkload]:
    """The stored workloads of these keys, in as many queries as needed."""
    unique = list(dict.fromkeys(keys))
    found: dict[str, StoredWorkload] = {}
    for start in range(0, len(unique), 1000):
        found |= workloads.get_many(session, unique[start : start + 1000])
    return found
