"""The JSON documents that commands print with --json; jobs, trials and kernels have the fields that REST gives them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tuner.measure.outcome import Failed, Outcome, Timed
from tuner.spaces.space import Config, Value

if TYPE_CHECKING:
    from db.engine import Session
    from db.jobs import Job
    from db.kernels import Kernel
    from db.trials import StoredTrial
    from db.workloads import StoredWorkload
    from tuner.target.target import Target
    from tuner.workload.workload import Workload

Document = dict[str, Any]
KEYS_AT_ONCE = 500  # in one query


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What the keys in jobs and kernels stand for."""

    workloads: Mapping[str, StoredWorkload]
    targets: Mapping[str, Target]

    @classmethod
    def of(cls, session: Session, *, workloads: Iterable[str], targets: Iterable[str]) -> Names:
        from db import targets as target_queries
        from db import workloads as workload_queries

        keys = sorted(set(workloads))
        chunks = [keys[start : start + KEYS_AT_ONCE] for start in range(0, len(keys), KEYS_AT_ONCE)]
        return cls(
            workloads={key: stored for chunk in chunks for key, stored in workload_queries.get_many(session, chunk).items()},
            targets={key: target_queries.get(session, key) for key in set(targets)},
        )

    def spec(self, key: str) -> str:
        return self.workloads[key].spec


def job(found: Job, names: Names) -> Document:
    return {
        "id": found.id,
        "kind": found.kind,
        "state": found.state,
        "target": target(names.targets[found.target]),
        "threads": found.threads,
        "trials": found.trials,
        "seconds": found.seconds,
        "strategy": found.strategy,
        "seed": found.seed,
        "priority": found.priority,
        "error": found.error,
        "created_at": _moment(found.created_at),
        "started_at": _moment(found.started_at),
        "finished_at": _moment(found.finished_at),
        "last_event": found.last_event,
        "tasks": [
            {
                "workload": stored_workload(names.workloads[task.workload]),
                "state": task.state,
                "space_size": task.space_size,
                "trials_done": task.trials_done,
                "trials_ok": task.trials_ok,
                "best_median_s": task.best_median_s,
                "kernel": task.kernel,
                "elapsed_s": dict(task.elapsed_s),
                "error": task.error,
            }
            for task in found.tasks
        ],
    }


def stored_workload(stored: StoredWorkload) -> Document:
    return {**_workload(stored.key, stored.op, stored.document), "spec": stored.spec}


def workload(found: Workload) -> Document:
    return _workload(
        found.key, found.op, {"params": dict(found.params), "notation": found.notation, "shapes": dict(found.shapes)}
    )


def _workload(key: str, op: str | None, document: Mapping[str, Any]) -> Document:
    """`key` and `op` with `params`, or with `notation` and `shapes` for what did not come from the catalogue."""
    rest = ("params",) if op is not None else ("notation", "shapes")
    return {"key": key, "op": op, **{name: document.get(name) for name in rest}}


def target(found: Target) -> Document:
    return {"key": found.key, "kind": found.kind, "name": found.name}


def trial(stored: StoredTrial) -> Document:
    outcome = stored.trial.outcome
    timed = outcome if isinstance(outcome, Timed) else None
    return {
        "workload": stored.position,
        "number": stored.trial.number,
        "config": config(stored.trial.config),
        "outcome": outcome_name(outcome),
        "median_s": median_s(outcome),
        "samples_s": list(timed.samples_s) if timed else None,
        "max_rel_error": timed.max_rel_error if timed else None,
        "build_s": stored.trial.build_s,
        "measure_s": stored.trial.measure_s,
        "predicted": stored.predicted,
        "worker": stored.worker,
        "error": outcome.message if isinstance(outcome, Failed) else None,
        "created_at": _moment(stored.created_at),
    }


def kernel(found: Kernel, names: Names) -> Document:
    return {
        "state": found.state,
        "workload": stored_workload(names.workloads[found.workload]),
        "target": target(names.targets[found.target]),
        "threads": found.threads,
        **kernel_numbers(found),
        "artifact": found.artifact,
        "job": found.job,
        "trial": found.trial,
        "previous": found.previous,
        "stale": found.stale,
        "race": dict(found.race),
        "versions": dict(found.versions),
        "created_at": _moment(found.created_at),
    }


def kernel_numbers(found: Kernel) -> Document:
    """A kernel as the result of `tuner tune` has it."""
    return {
        "id": found.id,
        "config": config(found.config),
        "median_s": found.median_s,
        "ci95_s": list(found.ci95_s),
        "gflops": found.gflops,
        "roofline_fraction": found.roofline_fraction,
        "max_rel_error": found.max_rel_error,
        "verified": found.verified,
        "default_median_s": found.default_median_s,
    }


def outcome_name(outcome: Outcome) -> str:
    """`ok`, or the kind of failure."""
    return "ok" if isinstance(outcome, Timed) else outcome.kind.value


def median_s(outcome: Outcome) -> float | None:
    return outcome.median_s if isinstance(outcome, Timed) else None


def config(values: Config) -> Document:
    """A config as JSON has it, with lists for tuples."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def config_text(values: Config) -> str:
    return " ".join(f"{name}={value_text(value)}" for name, value in values.items()) or "default schedule"


def value_text(value: Value) -> str:
    return "×".join(str(part) for part in value) if isinstance(value, tuple) else str(value)


def _moment(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()
