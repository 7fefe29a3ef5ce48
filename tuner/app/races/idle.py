"""What is measured of kernels after promotion, on all cores, while nothing else runs."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.app.kernels.kernel import Kernel
from tuner.app.races.energy import energy
from tuner.app.races.throughput import throughput
from tuner.db import tradeoffs
from tuner.db.engine import Database
from tuner.export.artifacts import ArtifactStore
from tuner.measure.objective import ENERGY, THROUGHPUT, Objective
from tuner.settings import Settings
from tuner.workers.fleet.machine import usable_nodes
from tuner.workload.workload import Workload


def measure_idle(
    database: Database,
    workload: Workload,
    target: str,
    threads: int,
    objectives: Sequence[Objective],
    settings: Settings,
) -> None:
    """Measures throughput and energy, as far as objectives need them, and stores them.

    Of the promoted kernel of the workload, target (key) and thread count, and of its
    tradeoffs. Raises UsageError for more threads than cores, NoEnergyCounters and
    RaceError.
    """
    cores = [core for node in usable_nodes() for core in node]
    store = ArtifactStore(settings.artifacts)
    with database.read() as session:
        kept = tradeoffs.choices(session, workload.key, target, threads)
    for stored in kept:
        kernel = Kernel(stored=stored, workload=workload, artifacts=store)
        if THROUGHPUT in objectives:
            made = throughput(workload, kernel, threads, cores, settings)
            with database.write() as session:
                tradeoffs.note_throughput(
                    session, stored.id, instances=made.instances, calls_per_s=made.calls_per_s
                )
        if ENERGY in objectives:
            joules = energy(workload, kernel, cores, settings)
            with database.write() as session:
                tradeoffs.note_energy(session, stored.id, joules)
