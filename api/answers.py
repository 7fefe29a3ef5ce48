"""Converts records of the database into the answers of the REST API, without queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from tuner.api.model_schemas import ModelAnswer, ModelShareAnswer, ModelStepAnswer, TensorAnswer
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
from tuner.db.trials import StoredTrial
from tuner.db.workers import ACTIVE, DRAINING, LOST, SILENT, Worker, is_silent
from tuner.db.workloads import StoredWorkload
from tuner.measure.outcome import Failed, Timed, conditions_to_document
from tuner.models.description import Description, Measurement
from tuner.spaces.core.space import Config, Value
from tuner.target.target import Target
from tuner.workload.expression import Tensor
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


def parsed_workload(workload: Workload) -> WorkloadAnswer:
    """The answer for a workload that was not read from the database."""
    if workload.op is not None:
        return WorkloadAnswer(
            key=workload.key, op=workload.op, params=dict(workload.params), spec=workload.spec
        )
    return WorkloadAnswer(
        key=workload.key,
        notation=workload.notation,
        shapes=dict(workload.shapes),
        spec=workload.spec,
    )


def target_ref(target: Target) -> TargetRef:
    return TargetRef(key=target.key, kind=target.kind, name=target.name)


def target(target: Target) -> TargetAnswer:
    return TargetAnswer(
        key=target.key,
        kind=target.kind,
        name=target.name,
        isa=list(target.isa),
        cores=target.cores,
        vector_bytes=target.vector_bytes,
        l1d_bytes=target.l1d_bytes,
        l2_bytes=target.l2_bytes,
        l3_bytes=target.l3_bytes,
        fingerprint=dict(target.fingerprint),
        fma_flops=None if target.limits is None else target.limits.fma_flops,
        tvm=dict(target.tvm),
        vector_registers=target.vector_registers,
        limits=None
        if target.limits is None
        else LimitsAnswer.model_validate(asdict(target.limits)),
    )


def task(task: Task, workloads: Mapping[str, StoredWorkload]) -> TaskAnswer:
    return TaskAnswer(
        workload=workload(workloads[task.workload]),
        state=task.state,
        space_size=task.space_size,
        trials_done=task.trials_done,
        trials_ok=task.trials_ok,
        best_median_s=task.best_median_s,
        kernel=task.kernel,
        elapsed_s=dict(task.elapsed_s),
        stopped=task.stopped,
        error=task.error,
    )


def job(
    job: Job,
    workloads: Mapping[str, StoredWorkload],
    targets: Mapping[str, Target],
    *,
    waiting: str | None = None,
    elapsed_s: float | None = None,
) -> JobAnswer:
    same = (
        "id", "kind", "state", "threads", "cache", "trials", "seconds", "strategy", "seed",
        "priority", "error", "created_at",
        "started_at", "finished_at", "last_event",
    )  # fmt: skip
    return JobAnswer(
        target=target_ref(targets[job.target]),
        waiting=waiting,
        elapsed_s=elapsed_s,
        objective=job.goal.text,
        tasks=[task(each, workloads) for each in job.tasks],
        **{name: getattr(job, name) for name in same},
    )


def config(values: Config) -> dict[str, Any]:
    """A config with its tuples as lists, as JSON has them."""
    return {name: knob_value(value) for name, value in values.items()}


def knob_value(value: Value) -> Any:
    """As JSON has it."""
    return list(value) if isinstance(value, tuple) else value


def trial(trial: StoredTrial) -> TrialAnswer:
    outcome = trial.trial.outcome
    timed = outcome if isinstance(outcome, Timed) else None
    conditions = None
    if timed is not None:
        document = conditions_to_document(timed.conditions)
        conditions = {name: value for name, value in document.items() if name != "reused"}
    return TrialAnswer(
        workload=trial.position,
        number=trial.trial.number,
        config=config(trial.trial.config),
        outcome="ok" if not isinstance(outcome, Failed) else outcome.kind.value,
        median_s=None if timed is None else timed.median_s,
        samples_s=None if timed is None else list(timed.samples_s),
        max_rel_error=None if timed is None else timed.max_rel_error,
        build_s=trial.trial.build_s,
        measure_s=trial.trial.measure_s,
        predicted=trial.predicted,
        worker=trial.worker,
        conditions=conditions,
        resources=None if trial.trial.resources is None else asdict(trial.trial.resources),
        workspace_bytes=None if timed is None else timed.workspace_bytes,
        code_bytes=trial.trial.code_bytes,
        error=outcome.message if isinstance(outcome, Failed) else None,
        created_at=trial.created_at,
    )


def kernel(
    kernel: Kernel, workloads: Mapping[str, WorkloadAnswer], targets: Mapping[str, Target]
) -> KernelAnswer:
    same = (
        "id", "threads", "cache", "median_s", "ci95_s", "disturbed", "gflops", "roofline_fraction",
        "max_rel_error", "verified",
        "default_median_s", "workspace_bytes", "code_bytes", "instances", "calls_per_s", "energy_j",
        "artifact", "job", "trial", "previous", "stale", "created_at",
    )  # fmt: skip
    return KernelAnswer(
        state=kernel.state.replace(" ", "_"),
        workload=workloads[kernel.workload],
        target=target_ref(targets[kernel.target]),
        config=config(kernel.config),
        race=dict(kernel.race),
        versions=dict(kernel.versions),
        **{name: getattr(kernel, name) for name in same},
    )


def event(event: Event) -> EventAnswer:
    return EventAnswer(
        job=event.job_id,
        sequence=event.sequence,
        kind=event.kind,
        data=dict(event.data),
        at=event.recorded_at,
    )


def worker(worker: Worker, now: datetime) -> WorkerAnswer:
    """A worker as it is `now`.

    One that has been silent for too long is lost, even if that is not recorded yet.
    """
    age_s = max(0.0, (now - worker.heartbeat_at).total_seconds())
    state, reason = worker.state, worker.reason
    if state in (ACTIVE, DRAINING) and is_silent(worker, now):
        state, reason = LOST, f"silent for more than {SILENT.total_seconds():g} s"
    return WorkerAnswer(
        id=worker.id,
        host=worker.host,
        state=state,
        reason=reason,
        target=worker.target,
        isolation=worker.isolation,
        lanes=list(worker.lanes),
        labels=dict(worker.labels),
        versions=dict(worker.versions),
        joined_at=worker.joined_at,
        heartbeat_at=worker.heartbeat_at,
        heartbeat_age_s=age_s,
    )


def tensors(described: Sequence[Tensor]) -> list[TensorAnswer]:
    return [
        TensorAnswer(name=tensor.name, dtype=tensor.dtype, shape=list(tensor.shape))
        for tensor in described
    ]


def shares(description: Description, measurement: Measurement) -> list[ModelShareAnswer]:
    """The kernels' parts of the time, the greatest first."""
    calls: Counter[str] = Counter()
    for step in description.steps:
        calls[step.kernel] += step.calls
    whole_s = sum(calls[key] * time.inside_s for key, time in measurement.kernels.items())
    answered = [
        ModelShareAnswer(
            kernel=key,
            calls=calls[key],
            inside_s=time.inside_s,
            share=calls[key] * time.inside_s / whole_s,
            peak_fraction=time.peak_fraction,
        )
        for key, time in measurement.kernels.items()
    ]
    return sorted(answered, key=lambda share: -share.share)


def model(job: Job, description: Description, measurement: Measurement | None) -> ModelAnswer:
    return ModelAnswer(
        median_s=None if measurement is None else measurement.median_s,
        ci95_s=None if measurement is None else measurement.ci95_s,
        disturbed=measurement is not None and measurement.disturbed,
        max_rel_error=None if measurement is None else measurement.max_rel_error,
        shares=[] if measurement is None else shares(description, measurement),
        job=job.id,
        state=job.state,
        inputs=tensors(description.inputs),
        outputs=tensors(description.outputs),
        steps=[
            ModelStepAnswer(
                kernel=step.kernel,
                name=step.name,
                numerics=step.numerics,
                calls=step.calls,
                reads=tensors(step.reads),
                constants=list(step.constants),
                writes=tensors(step.writes),
                after=list(step.after),
                inputs=list(step.inputs),
                outputs=list(step.outputs),
            )
            for step in description.steps
        ],
        constants_bytes=description.constants_bytes,
        activations_bytes=description.activations_bytes,
    )
