"""Jobs from the outside: submitted, run in this process, requeued, and their results."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tuner.app.devices import device_lanes
from tuner.app.jobs.abandoned import is_gone, settled
from tuner.app.jobs.waiting import run_or_wait, target_of, wait
from tuner.app.machine import energy_counters, gpus_for
from tuner.db import jobs, kernels, leases, targets, trials, workloads
from tuner.db.engine import Database, Session
from tuner.db.jobs import Job, NewJob
from tuner.db.kernels import Kernel
from tuner.errors import UsageError
from tuner.export.signature import KEY_FILE
from tuner.measure.assignment import Lane
from tuner.measure.cache import check_cache, refuse_cold
from tuner.measure.gpu.runner import GpuLane
from tuner.measure.objective import ENERGY, check_goal
from tuner.measure.outcome import FailureKind
from tuner.settings import Settings
from tuner.target.capability import is_declared, serves
from tuner.target.detect import detect_cpu
from tuner.target.target import Target
from tuner.workers.fleet.messages import Limits
from tuner.workers.jobs.orchestrator import Interrupt, JobReport, OrchestratorOptions, run_job
from tuner.workers.jobs.progress import Observer, unobserved
from tuner.workload.spec import from_document, to_document
from tuner.workload.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """The result of tuning one workload."""

    workload: Workload
    target: Target
    space_size: int | None  # None where the job ended before the space was made
    trials: int
    trials_ok: int
    failures: Mapping[FailureKind, int]
    # None where the job ended before promotion, or not even the default schedule could
    # be verified.
    kernel: Kernel | None
    elapsed_s: Mapping[str, float]  # total, search, build, measure
    error: str | None


def submit(
    database: Database,
    tuned: Sequence[Workload],
    target: Target,
    settings: Settings,
    *,
    priority: int = 0,
    improve: bool = True,
) -> Job:
    """Queues a job for workloads, with the settings' budget, strategy and seed.

    Without `improve`, a workload that an earlier search gave a kernel keeps that kernel.
    Raises UsageError for caches and objectives that a target is not measured with,
    NoEnergyCounters.
    """
    check_cache(settings.cache, target)
    check_goal(settings.goal, target)
    if settings.goal.on_idle_machine:
        refuse_cold(settings.cache, f"{settings.objective} is measured by calls in a row")
    if ENERGY in settings.goal.objectives:
        energy_counters(target)
    with database.write("submit") as session:
        targets.remember(session, target)
        keys = tuple(
            workloads.remember(session, workload, to_document(workload)) for workload in tuned
        )
        new = NewJob(
            workloads=keys,
            target=target.key,
            threads=settings.threads,
            trials=settings.trials,
            seconds=settings.seconds,
            strategy=settings.strategy,
            seed=settings.seed,
            priority=priority,
            cache=settings.cache,
            goal=settings.goal,
            settings={} if improve else {"improve": False},
        )
        job, _ = jobs.create(session, new)
    return job


def run(
    database: Database,
    job_id: str,
    settings: Settings,
    *,
    observer: Observer = unobserved,
    interrupt: Interrupt = lambda: None,
) -> JobReport:
    """Runs a queued job in this process with local workers.

    It runs to its end, or until `interrupt` says to stop. A job that a service on the same
    database was quicker to claim is watched until its end. A job for a GPU that neither
    this machine nor the settings' cluster has is only watched, until a runner of its
    target has finished it. Raises UsageError for a job of a CPU that is neither this
    machine's nor a device's.
    """
    target = target_of(database, job_id)
    gpus, devices = gpus_for(target), device_lanes(settings, target)
    elsewhere = target.on_device or devices or settings.address
    if is_declared(target) and not elsewhere and not serves(detect_cpu(), target):
        raise UsageError(
            f"job {job_id} is for {target.name}, which this machine is not; name a device that "
            f"is one: tuner resume {job_id} --device 'ssh HOST ./tuner-agent'"
        )
    if target.on_device and not gpus and not settings.address:
        return wait(database, job_id, observer=observer, interrupt=interrupt)
    options = orchestrator_options(settings, gpus, devices)
    attempt = partial(run_job, database, job_id, options, observer=observer, interrupt=interrupt)
    return run_or_wait(attempt, database, job_id, observer=observer, interrupt=interrupt)


def orchestrator_options(
    settings: Settings, gpus: tuple[GpuLane, ...] = (), devices: tuple[Lane, ...] = ()
) -> OrchestratorOptions:
    """The orchestrator's options from the settings.

    `gpus` and `devices` are those that measure; without any, cores measure.
    """
    limits = Limits(
        build_timeout_s=settings.build_timeout_s,
        run_timeout_s=settings.run_timeout_s,
        isolation=settings.isolation,
    )
    return OrchestratorOptions(
        artifacts=settings.artifacts,
        signing_key=settings.data_dir / KEY_FILE,
        lanes=settings.lanes,
        builders=settings.builders,
        gpus=gpus,
        devices=devices,
        address=settings.address or None,
        limits=limits,
        policy=settings.policy,
        running_jobs=settings.running_jobs,
        running_per_key=settings.running_per_key,
        lane_share=settings.lane_share,
        judges=settings.candidates == "on",
    )


def requeue(
    database: Database, job_id: str, *, trials: int | None = None, seconds: float | None = None
) -> Job:
    """Queues a job again; it will continue after its recorded trials.

    The job is cancelled, failed, or was left running by a dead process. Raises LeaseHeld
    while a living process works on it, IllegalTransition for a job that succeeded,
    NotFound.
    """
    with database.write("requeue") as session:
        leases.settle_abandoned(session)
        job = settled(session, jobs.get(session, job_id))
        if job.state == jobs.RUNNING:
            owner = f"{socket.gethostname()}:{os.getpid()}"
            _, lease = leases.claim(
                session, job_id, owner=owner, take_over=is_gone(job.lease_owner)
            )
            leases.release(session, lease)
        return jobs.resume(session, job_id, trials=trials, seconds=seconds)


def results(database: Database, job_id: str) -> tuple[TaskResult, ...]:
    """The results of the job's workloads, in their order."""
    with database.read() as session:
        job = jobs.get(session, job_id)
        target = targets.get(session, job.target)
        return tuple(_result(session, job, position, target) for position in range(len(job.tasks)))


def _result(session: Session, job: Job, position: int, target: Target) -> TaskResult:
    task = job.tasks[position]
    return TaskResult(
        workload=from_document(workloads.get(session, task.workload).document),
        target=target,
        space_size=task.space_size,
        trials=task.trials_done,
        trials_ok=task.trials_ok,
        failures=trials.failure_counts(session, job.id, position),
        kernel=None if task.kernel is None else kernels.get(session, task.kernel),
        elapsed_s=task.elapsed_s,
        error=task.error,
    )
