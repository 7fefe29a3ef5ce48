"""What a kernel is raced with: the promoted kernel of a task, and the default schedule."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from uuid import uuid4

from tuner.db import kernels
from tuner.db.engine import Session
from tuner.db.kernels import Kernel
from tuner.export.artifacts import ArtifactCorrupt, ArtifactMissing, ArtifactStore
from tuner.measure.regression import CANARY
from tuner.workers.fleet.messages import BuildFinalists, BuildRequest, Built, Contestant, Library
from tuner.workers.fleet.shipping import discard
from tuner.workers.jobs.contest import ATTEMPTS, BUILD_S, DEFAULT, INCUMBENT
from tuner.workers.jobs.task import TaskRun


def promoted_contestant(run: TaskRun, store: ArtifactStore) -> tuple[Kernel, Contestant] | None:
    """The promoted kernel of a task's workload; None if there is none or its library is lost."""
    return _stored(run, store, kernels.find_promoted, INCUMBENT)


def canary_contestant(run: TaskRun, store: ArtifactStore) -> tuple[Kernel, Contestant] | None:
    """The canary of a task's workload; None if there is none or its library is lost."""
    return _stored(run, store, kernels.find_canary, CANARY)


def _stored(
    run: TaskRun,
    store: ArtifactStore,
    find: Callable[[Session, str, str, int], Kernel | None],
    name: str,
) -> tuple[Kernel, Contestant] | None:
    problem = run.problem
    with run.database.read() as session:
        kernel = find(session, problem.workload.key, problem.target.key, problem.threads)
        symbol = None if kernel is None else kernels.schedule(session, kernel.id).get("symbol")
    if kernel is None or not isinstance(symbol, str):
        return None
    try:
        path = store.verify(kernel.artifact)
    except (ArtifactMissing, ArtifactCorrupt):
        return None
    return kernel, Contestant(name=name, path=str(path), symbol=symbol)


def default_contestant(
    run: TaskRun, check: Callable[[], None], made: ExitStack
) -> Contestant | str:
    """The default schedule, built now, or why it could not be built. It is deleted with `made`.

    `check` raises when the work is to stop.
    """
    request = BuildRequest(number=0, config=None, keep=uuid4().hex)
    error: str | None = None
    for _ in range(ATTEMPTS):
        answer = run.measurer.request_control(
            BuildFinalists(requests=(request,)), timeout_s=BUILD_S * request.patience, check=check
        )
        error = answer.error
        for built in answer.value:
            if isinstance(built, Built):
                if isinstance(built.result, Library):
                    library = built.result
                    made.callback(discard, library)
                    return Contestant(name=DEFAULT, path=library.path, symbol=library.symbol)
                error = built.result.message
    return str(error)
