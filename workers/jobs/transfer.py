"""Transfer from earlier searches: a trained prior, and good configs.

They are those of the same target, or of others of its kind where it has none: features are
made of each target's own description, so what they say of a kernel means the same. A config
of another CPU or GPU is carried over where the space has it too.

The prior is stored with a digest of the trials it learned from, and loaded as long as
none were added. Training is bounded to a few workloads and a few hundred trials of each,
about half a second in all; no workload is begun after LIMIT_S.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from tuner.cost_model.history import HistoryModel, Past, taught
from tuner.db import cost_models, history, targets
from tuner.db.engine import Database, Session
from tuner.db.history import PastTask
from tuner.db.jobs import Job, Task
from tuner.errors import UsageError
from tuner.measure.outcome import Timed, Trial
from tuner.search.past import best_configs, past_of
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Config, Space
from tuner.target.target import Target
from tuner.workers.backends.table import backend_of
from tuner.workload.spec import from_document

# Workloads to learn from: the newest, first those of the same operator, which transfer best.
WORKLOADS = 8
TRIALS = 512  # read of each, by number
LEAST = 16  # timed trials from which a workload teaches an order
CARRIED = 2  # best configs taken from each workload of the same operator
LIMIT_S = 0.6  # after which no further workload is read: a search must not wait longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a search starts from; empty for a target's first workload."""

    prior: HistoryModel | None = None
    best: tuple[Config, ...] = ()  # of workloads of the same operator, to be tried first
    learned_from: tuple[str, ...] = ()  # keys of the workloads the prior knows


@dataclass(frozen=True, slots=True)
class _PastTrials:
    """A workload of the history with its trials."""

    task: PastTask
    trials: tuple[Trial, ...]


def start_of(
    database: Database,
    *,
    job: Job,
    task: Task,
    op: str | None,
    target: Target,
    clock: Callable[[], float] = time.monotonic,
) -> Start:
    """What the search of a task with the operator `op` starts from.

    A resumed task gets the same, whatever was recorded since its job first started,
    unless the time limit was reached.
    """
    began = clock()
    past_tasks = _past_trials(database, job, task, op, target)
    best = tuple(
        config
        for past in past_tasks
        if past.task.op == op and op is not None
        for config in best_configs(past.trials, CARRIED)
    )
    if not past_tasks:
        return Start(best=best)
    digest = _digest(past_tasks, op)
    prior, workloads = _stored(database, target, digest) or _trained(
        database, past_tasks, job.threads, target, op, digest, lambda: clock() - began < LIMIT_S
    )
    return Start(prior=prior, best=best, learned_from=workloads)


def _trained(
    database: Database,
    past_tasks: Sequence[_PastTrials],
    threads: int,
    target: Target,
    op: str | None,
    digest: str,
    in_time: Callable[[], bool],
) -> tuple[HistoryModel | None, tuple[str, ...]]:
    """A prior trained for the operator and stored under the digest, and its workloads.

    The prior is None if no trial's config exists any more.
    """
    with database.read() as session:
        machines = {past.task.target: targets.get(session, past.task.target) for past in past_tasks}
    pasts = _pasts(past_tasks, machines, threads, in_time)
    if not pasts:
        return None, ()
    transfer = backend_of(target).transfer
    prior, workloads = taught(transfer.prior(), pasts, op), tuple(past.workload for past in pasts)
    with database.write("ranker") as session:
        cost_models.save(
            session,
            target=target.key,
            feature_version=transfer.version,
            blob=prior.save(),
            trained_on=sum(len(past.labels) for past in pasts),
            metrics={"digest": digest, "workloads": workloads},
        )
    return prior, workloads


def _past_trials(
    database: Database, job: Job, task: Task, op: str | None, target: Target
) -> list[_PastTrials]:
    before = job.started_at or job.created_at
    with database.read() as session:
        own = history.recent_tasks(
            session,
            target=job.target,
            threads=job.threads,
            cache=job.cache,
            before=before,
            job=job.id,
            position=task.position,
            least=LEAST,
        )
        taught = _read(session, own, job, op, before)
        if taught:
            return taught
        elsewhere = history.tasks_elsewhere(
            session,
            target=job.target,
            kind=target.kind,
            threads=job.threads,
            cache=job.cache,
            before=before,
            least=LEAST,
        )
        return _read(session, elsewhere, job, op, before)


def _read(
    session: Session,
    tasks: Sequence[PastTask],
    job: Job,
    op: str | None,
    before: datetime,
) -> list[_PastTrials]:
    """The tasks with enough timed trials, those of the same operator first."""
    same = [other for other in tasks if op is not None and other.op == op]
    chosen = [*same, *(other for other in tasks if other not in same)][:WORKLOADS]
    read = []
    for chosen_task in chosen:
        until = None if chosen_task.job == job.id else before
        trials = history.trials_before(session, chosen_task, until, limit=TRIALS)
        if sum(isinstance(trial.outcome, Timed) for trial in trials) >= LEAST:
            read.append(_PastTrials(chosen_task, trials))
    return read


def _digest(past_tasks: Sequence[_PastTrials], op: str | None) -> str:
    content = [op, *((past.task.job, past.task.position, len(past.trials)) for past in past_tasks)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _stored(
    database: Database, target: Target, digest: str
) -> tuple[HistoryModel, tuple[str, ...]] | None:
    """The stored prior if it learned from exactly these trials, and its workloads' keys."""
    transfer = backend_of(target).transfer
    with database.read() as session:
        stored = cost_models.latest(session, target.key, transfer.version)
    if stored is None or stored.metrics.get("digest") != digest:
        return None
    prior = transfer.prior()
    try:
        prior.load(stored.blob)
    except UsageError:  # of another version, or damaged: fitted again, it costs half a second
        return None
    return prior, tuple(stored.metrics["workloads"])


def _pasts(
    past_tasks: Sequence[_PastTrials],
    machines: Mapping[str, Target],
    threads: int,
    in_time: Callable[[], bool],
) -> list[Past]:
    """The workloads with their features, as many as the time allows and at least the first."""
    described: list[Past] = []
    for past in past_tasks:
        if described and not in_time():
            break
        machine = machines[past.task.target]
        space = space_of(from_document(past.task.document), machine, threads)
        kept = [trial for trial in past.trials if _is_of(space.space, trial)]
        if sum(isinstance(trial.outcome, Timed) for trial in kept) >= LEAST:
            features = backend_of(machine).transfer.featurizer(space)
            described.append(past_of(past.task.workload, past.task.op, space.space, kept, features))
    return described


def _is_of(space: Space, trial: Trial) -> bool:
    """Whether the space still has the trial's config; spaces change from version to version."""
    try:
        space.point(trial.config)
    except UsageError:
        return False
    return True
