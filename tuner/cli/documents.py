"""The JSON documents that commands print with --json; jobs, trials and kernels have the
fields that REST gives them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.api.schemas import (
        JobAnswer,
        KernelAnswer,
        TargetRef,
        TrialAnswer,
        WorkerAnswer,
        WorkloadAnswer,
    )
    from tuner.spaces.core.space import Config
    from tuner.target.target import Target
    from tuner.workload.workload import Workload

Document = dict[str, Any]


def job(found: JobAnswer) -> Document:
    return {
        "id": found.id,
        "kind": found.kind,
        "state": found.state,
        "target": target(found.target),
        "threads": found.threads,
        "trials": found.trials,
        "seconds": found.seconds,
        "strategy": found.strategy,
        "seed": found.seed,
        "priority": found.priority,
        "error": found.error,
        "waiting": found.waiting,
        "created_at": _moment(found.created_at),
        "started_at": _moment(found.started_at),
        "finished_at": _moment(found.finished_at),
        "last_event": found.last_event,
        "tasks": [
            {
                "workload": {**answered_workload(task.workload), "spec": task.workload.spec},
                "state": task.state,
                "space_size": task.space_size,
                "trials_done": task.trials_done,
                "trials_ok": task.trials_ok,
                "best_median_s": task.best_median_s,
                "kernel": task.kernel,
                "elapsed_s": dict(task.elapsed_s),
                "stopped": task.stopped,
                "error": task.error,
            }
            for task in found.tasks
        ],
    }


def answered_workload(found: WorkloadAnswer) -> Document:
    return _workload(
        found.key,
        found.op,
        {"params": found.params, "notation": found.notation, "shapes": found.shapes},
    )


def workload(found: Workload) -> Document:
    return _workload(
        found.key,
        found.op,
        {"params": dict(found.params), "notation": found.notation, "shapes": dict(found.shapes)},
    )


def _workload(key: str, op: str | None, document: Mapping[str, Any]) -> Document:
    """`key` and `op` with `params`, or with `notation` and `shapes` for what did not
    come from the catalogue."""
    rest = ("params",) if op is not None else ("notation", "shapes")
    return {"key": key, "op": op, **{name: document.get(name) for name in rest}}


def target(found: Target | TargetRef) -> Document:
    return {"key": found.key, "kind": found.kind, "name": found.name}


def trial(found: TrialAnswer) -> Document:
    names = (
        "workload", "number", "config", "outcome", "median_s", "samples_s", "max_rel_error",
        "build_s", "measure_s",
        "predicted", "worker", "resources", "error",
    )  # fmt: skip
    return {name: getattr(found, name) for name in names} | {
        "created_at": _moment(found.created_at)
    }


def kernel(found: KernelAnswer) -> Document:
    return {
        "state": found.state,
        "workload": {**answered_workload(found.workload), "spec": found.workload.spec},
        "target": target(found.target),
        "threads": found.threads,
        **kernel_numbers(found),
        "artifact": found.artifact,
        "job": found.job,
        "trial": found.trial,
        "previous": found.previous,
        "stale": found.stale,
        "race": found.race,
        "versions": found.versions,
        "created_at": _moment(found.created_at),
    }


def kernel_numbers(found: KernelAnswer) -> Document:
    """A kernel as the result of `tuner tune` has it."""
    return {
        "id": found.id,
        "config": found.config,
        "median_s": found.median_s,
        "ci95_s": list(found.ci95_s),
        "gflops": found.gflops,
        "roofline_fraction": found.roofline_fraction,
        "max_rel_error": found.max_rel_error,
        "verified": found.verified,
        "default_median_s": found.default_median_s,
    }


def worker(found: WorkerAnswer) -> Document:
    document = found.model_dump(mode="json")
    return document | {
        "joined_at": _moment(found.joined_at),
        "heartbeat_at": _moment(found.heartbeat_at),
    }


def config(values: Config) -> Document:
    """A config as JSON has it, with lists for tuples."""
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
    }


def _moment(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()
