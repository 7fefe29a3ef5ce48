"""From the database's records to what travels over REST. No queries here: routes read,
these write it down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from tuner.api.schemas import (
    EventAnswer,
    JobAnswer,
    KernelAnswer,
    LimitsAnswer,
    TargetAnswer,
    TargetRef,
    TaskAnswer,
    TrialAnswer,
    WorkerAnswer,
    WorkloadAnswer,
)
from tuner.db.events import Event
from tuner.db.jobs import Job, Task
from tuner.db.kernels import Kernel
from tuner.db.runners import SILENT
from tuner.db.trials import StoredTrial
from tuner.db.workers import ACTIVE, DRAINING, LOST, Worker
from tuner.db.workloads import StoredWorkload
from tuner.measure.outcome import Failed, Timed
from tuner.spaces.core.space import Config
from tuner.target.target import Target
from tuner.workload.workload import Workload


def workload(stored: StoredWorkload) -> WorkloadAnswer:
    document = stored.document
    if stored.op is not None:
        return WorkloadAnswer(
            key=stored.key, op=stored.op, params=document.get("params"), spec=stored.spec
        )
    return WorkloadAnswer(
        key=stored.key,
        notation=document.get("notation"),
        shapes=document.get("shapes"),
        spec=stored.spec,
    )


def parsed_workload(found: Workload) -> WorkloadAnswer:
    """The same of a workload that was not read from the database."""
    if found.op is not None:
        return WorkloadAnswer(
            key=found.key, op=found.op, params=dict(found.params), spec=found.spec
        )
    return WorkloadAnswer(
        key=found.key, notation=found.notation, shapes=dict(found.shapes), spec=found.spec
    )


def target_ref(found: Target) -> TargetRef:
    return TargetRef(key=found.key, kind=found.kind, name=found.name)


def target(found: Target) -> TargetAnswer:
    return TargetAnswer(
        key=found.key,
        kind=found.kind,
        name=found.name,
        isa=list(found.isa),
        cores=found.cores,
        vector_bytes=found.vector_bytes,
        l1d_bytes=found.l1d_bytes,
        l2_bytes=found.l2_bytes,
        l3_bytes=found.l3_bytes,
        fingerprint=dict(found.fingerprint),
        fma_flops=None if found.limits is None else found.limits.fma_flops,
        tvm=dict(found.tvm),
        vector_registers=found.vector_registers,
        limits=None if found.limits is None else LimitsAnswer.model_validate(asdict(found.limits)),
    )


def task(found: Task, workloads: Mapping[str, StoredWorkload]) -> TaskAnswer:
    return TaskAnswer(
        workload=workload(workloads[found.workload]),
        state=found.state,
        space_size=found.space_size,
        trials_done=found.trials_done,
        trials_ok=found.trials_ok,
        best_median_s=found.best_median_s,
        kernel=found.kernel,
        elapsed_s=dict(found.elapsed_s),
        stopped=found.stopped,
        error=found.error,
    )


def job(
    found: Job,
    workloads: Mapping[str, StoredWorkload],
    targets: Mapping[str, Target],
    *,
    waiting: str | None = None,
) -> JobAnswer:
    same = (
        "id", "kind", "state", "threads", "trials", "seconds", "strategy", "seed", "priority",
        "error", "created_at",
        "started_at", "finished_at", "last_event",
    )  # fmt: skip
    return JobAnswer(
        target=target_ref(targets[found.target]),
        waiting=waiting,
        tasks=[task(each, workloads) for each in found.tasks],
        **{name: getattr(found, name) for name in same},
    )


def config(values: Config) -> dict[str, Any]:
    """Tuples become lists, as JSON has it."""
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
    }


def trial(found: StoredTrial) -> TrialAnswer:
    outcome = found.trial.outcome
    timed = outcome if isinstance(outcome, Timed) else None
    conditions = None
    if timed is not None:
        names = ("lane", "isolation", "cache", "steal_s", "frequency_hz", "pace", "abandoned")
        conditions = {name: getattr(timed.conditions, name) for name in names}
    return TrialAnswer(
        workload=found.position,
        number=found.trial.number,
        config=config(found.trial.config),
        outcome="ok" if not isinstance(outcome, Failed) else outcome.kind.value,
        median_s=None if timed is None else timed.median_s,
        samples_s=None if timed is None else list(timed.samples_s),
        max_rel_error=None if timed is None else timed.max_rel_error,
        build_s=found.trial.build_s,
        measure_s=found.trial.measure_s,
        predicted=found.predicted,
        worker=found.worker,
        conditions=conditions,
        resources=None if found.trial.resources is None else asdict(found.trial.resources),
        error=outcome.message if isinstance(outcome, Failed) else None,
        created_at=found.created_at,
    )


def kernel(
    found: Kernel, workloads: Mapping[str, WorkloadAnswer], targets: Mapping[str, Target]
) -> KernelAnswer:
    same = (
        "id", "threads", "median_s", "ci95_s", "gflops", "roofline_fraction", "max_rel_error",
        "verified",
        "default_median_s", "artifact", "job", "trial", "previous", "stale", "created_at",
    )  # fmt: skip
    return KernelAnswer(
        state=found.state.replace(" ", "_"),
        workload=workloads[found.workload],
        target=target_ref(targets[found.target]),
        config=config(found.config),
        race=dict(found.race),
        versions=dict(found.versions),
        **{name: getattr(found, name) for name in same},
    )


def event(found: Event) -> EventAnswer:
    return EventAnswer(
        job=found.job_id,
        sequence=found.sequence,
        kind=found.kind,
        data=dict(found.data),
        at=found.at,
    )


def worker(found: Worker, now: datetime) -> WorkerAnswer:
    """As it is `now`: a worker that has been silent for long is lost, whether or not
    anybody has written that down."""
    age_s = max(0.0, (now - found.heartbeat_at).total_seconds())
    state, reason = found.state, found.reason
    if state in (ACTIVE, DRAINING) and age_s > SILENT.total_seconds():
        state, reason = LOST, f"silent for more than {SILENT.total_seconds():g} s"
    return WorkerAnswer(
        id=found.id,
        host=found.host,
        state=state,
        reason=reason,
        target=found.target,
        isolation=found.isolation,
        lanes=list(found.lanes),
        labels=dict(found.labels),
        versions=dict(found.versions),
        joined_at=found.joined_at,
        heartbeat_at=found.heartbeat_at,
        heartbeat_age_s=age_s,
    )
