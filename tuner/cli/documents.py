"""The JSON documents that commands print with --json, with the fields of REST's answers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tuner.measure.cache import WARM

if TYPE_CHECKING:
    from tuner.api.schemas import (
        JobAnswer,
        KernelAnswer,
        TargetRef,
        TrialAnswer,
        WorkerAnswer,
        WorkloadAnswer,
    )
    from tuner.spaces.core.space import Config, Value
    from tuner.target.target import Target
    from tuner.workload.workload import Workload

Document = dict[str, Any]


def job(answer: JobAnswer) -> Document:
    """A job with its tasks."""
    return {
        "id": answer.id,
        "kind": answer.kind,
        "state": answer.state,
        "target": target(answer.target),
        "threads": answer.threads,
        "trials": answer.trials,
        "seconds": answer.seconds,
        "strategy": answer.strategy,
        "seed": answer.seed,
        "cache": answer.cache,
        "objective": answer.objective,
        "priority": answer.priority,
        "error": answer.error,
        "waiting": answer.waiting,
        "created_at": _moment(answer.created_at),
        "started_at": _moment(answer.started_at),
        "finished_at": _moment(answer.finished_at),
        "elapsed_s": answer.elapsed_s,
        "last_event": answer.last_event,
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
            for task in answer.tasks
        ],
    }


def answered_workload(answer: WorkloadAnswer) -> Document:
    """A workload as REST answers it."""
    return _workload(
        answer.key,
        answer.op,
        {"params": answer.params, "notation": answer.notation, "shapes": answer.shapes},
    )


def workload(source: Workload) -> Document:
    """A workload that was read from the command line."""
    return _workload(
        source.key,
        source.op,
        {"params": dict(source.params), "notation": source.notation, "shapes": dict(source.shapes)},
    )


def _workload(key: str, op: str | None, document: Mapping[str, Any]) -> Document:
    """`key` and `op` with `params`; with `notation` and `shapes` where there is no operator."""
    rest = ("params",) if op is not None else ("notation", "shapes")
    return {"key": key, "op": op, **{name: document.get(name) for name in rest}}


def target(named: Target | TargetRef) -> Document:
    """A target by key, kind and name."""
    return {"key": named.key, "kind": named.kind, "name": named.name}


def trial(answer: TrialAnswer) -> Document:
    """A trial with its config and outcome."""
    names = (
        "workload", "number", "config", "outcome", "median_s", "samples_s", "max_rel_error",
        "build_s", "measure_s",
        "predicted", "worker", "resources", "workspace_bytes", "code_bytes", "error",
    )  # fmt: skip
    return {name: getattr(answer, name) for name in names} | {
        "created_at": _moment(answer.created_at)
    }


def kernel(answer: KernelAnswer) -> Document:
    """A kernel with its workload, numbers and origin."""
    return {
        "state": answer.state,
        "workload": {**answered_workload(answer.workload), "spec": answer.workload.spec},
        "target": target(answer.target),
        "threads": answer.threads,
        **kernel_numbers(answer),
        "artifact": answer.artifact,
        "job": answer.job,
        "trial": answer.trial,
        "previous": answer.previous,
        "stale": answer.stale,
        "race": answer.race,
        "versions": answer.versions,
        "created_at": _moment(answer.created_at),
    }


def kernel_numbers(answer: KernelAnswer) -> Document:
    """The numbers of a kernel, as the result of `tuner tune` has them."""
    return {
        "id": answer.id,
        "config": answer.config,
        "cache": answer.cache,
        "median_s": answer.median_s,
        "ci95_s": list(answer.ci95_s),
        "disturbed": answer.disturbed,
        "gflops": answer.gflops,
        "roofline_fraction": answer.roofline_fraction,
        "max_rel_error": answer.max_rel_error,
        "verified": answer.verified,
        "default_median_s": answer.default_median_s,
        "workspace_bytes": answer.workspace_bytes,
        "code_bytes": answer.code_bytes,
        "instances": answer.instances,
        "calls_per_s": answer.calls_per_s,
        "energy_j": answer.energy_j,
    }


def remarks(answer: KernelAnswer) -> str:
    """What tables say of a kernel in words."""
    words = [
        answer.state if answer.state != "promoted" else "",
        f"{answer.cache} caches" if answer.cache != WARM else "",
        "disturbed" if answer.disturbed else "",
    ]
    return ", ".join(word for word in words if word)


def worker(answer: WorkerAnswer) -> Document:
    """A worker with its lanes."""
    document = answer.model_dump(mode="json")
    return document | {
        "joined_at": _moment(answer.joined_at),
        "heartbeat_at": _moment(answer.heartbeat_at),
    }


def config(values: Config) -> Document:
    """A config as JSON values."""
    return {name: plain_value(value) for name, value in values.items()}


def plain_value(value: Value) -> Any:
    """A knob's value as JSON has it, with lists for tuples."""
    return list(value) if isinstance(value, tuple) else value


def _moment(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()
