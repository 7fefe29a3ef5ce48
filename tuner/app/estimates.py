"""Estimates of workloads' times from the database, for the settings' target and threads."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.api.estimate_schemas import EstimatesAnswer
from tuner.api.estimates import Estimator
from tuner.db import targets
from tuner.db.engine import Database
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
