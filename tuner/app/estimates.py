"""Estimates of workloads' times from the database, for the settings' target and threads,
and jobs that make them surer."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.api.estimate_schemas import EstimatesAnswer
from tuner.api.estimates import Estimator
from tuner.api.learning import learning_plan
from tuner.app.jobs.lifecycle import submit
from tuner.app.machine import checked_target, with_limits
from tuner.db import targets
from tuner.db.engine import Database
from tuner.db.jobs import Job
from tuner.settings import Settings
from tuner.target.detect import parse_target
from tuner.workload.workload import Workload


def estimate(
    database: Database, workloads: Sequence[Workload], settings: Settings
) -> EstimatesAnswer:
    """An estimate of each workload, in their order. Raises as `Estimator.estimate` does."""
    named = parse_target(settings.target, settings.microarchitectures)
    with database.read() as session:
        stored = targets.find(session, named.key)  # with its limits
    return Estimator(database).estimate(workloads, stored or named, settings.threads)


def learn(
    database: Database,
    workloads: Sequence[Workload],
    weights: Sequence[float],
    settings: Settings,
    *,
    seconds: float,
) -> Job:
    """Queues a job that spends `seconds` where the predictor is unsure and the weights high.

    Raises as `learning_plan` does, and UsageError for a target that this machine is not.
    """
    machine = with_limits(database, checked_target(settings))
    plan = learning_plan(
        Estimator(database), workloads, weights, machine, settings.threads, seconds
    )
    own = settings.model_copy(update={"seconds": plan.seconds})
    return submit(database, plan.workloads, machine, own, improve=False)
