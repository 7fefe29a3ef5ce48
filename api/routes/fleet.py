"""Routes of workers, targets and operators."""

from __future__ import annotations

from fastapi import APIRouter

from tuner.api import answers
from tuner.api.answer_queries import worker_answers
from tuner.api.auth import Reader
from tuner.api.operators import operator_answer
from tuner.api.problems import documented
from tuner.api.schemas import OperatorAnswer, Page, TargetAnswer, WorkerAnswer
from tuner.api.service import ServiceDep
from tuner.db import targets
from tuner.workload.catalogue import CATALOGUE

router = APIRouter(prefix="/v1", tags=["fleet"])


@router.get("/workers", responses=documented(401, 403, 429, 503))
def list_workers(caller: Reader, service: ServiceDep) -> Page[WorkerAnswer]:
    """Every machine of the fleet, with its lanes, its state and what it did today."""
    with service.database.read() as session:
        return Page(items=worker_answers(session), next=None)


@router.get("/targets", responses=documented(401, 403, 429, 503))
def list_targets(caller: Reader, service: ServiceDep) -> Page[TargetAnswer]:
    """Every target a worker has brought, the oldest first."""
    with service.database.read() as session:
        return Page(
            items=[answers.target(target) for target in targets.list_all(session)], next=None
        )


@router.get("/operators", responses=documented(401, 403, 429))
def list_operators(caller: Reader) -> Page[OperatorAnswer]:
    """The catalogue: each operator with its parameters and its program in the notation."""
    return Page(items=[operator_answer(operator) for operator in CATALOGUE], next=None)
