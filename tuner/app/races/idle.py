"""What is measured of kernels after promotion, while nothing else runs."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.app.platforms.table import platform_of
from tuner.app.races.energy import energy
from tuner.app.races.throughput import throughputs
from tuner.db import targets, tradeoffs
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

    Energy of the promoted kernel of the workload, target (key) and thread count, and of its
    tradeoffs. Throughput also of those of other thread counts, since it is for comparing
    counts, and the machine may have been another when they were tuned. Raises UsageError
    for more threads than cores, NoEnergyCounters and RaceError.
    """
    cores = [core for node in usable_nodes() for core in node]
    store = ArtifactStore(settings.artifacts)
    with database.read() as session:
        kept = tradeoffs.choices(session, workload.key, target, None)
        measured_on = targets.get(session, target)
    # Other machines of the target may have more cores than this one.
    kernels = [
        platform_of(measured_on).open(stored=stored, workload=workload, artifacts=store)
        for stored in kept
        if stored.threads <= max(threads, len(cores))
    ]
    if THROUGHPUT in objectives:
        for kernel, made in zip(
            kernels, throughputs(workload, kernels, cores, settings), strict=True
        ):
            with database.write() as session:
                tradeoffs.note_throughput(
                    session, kernel.id, instances=made.instances, calls_per_s=made.calls_per_s
                )
    if ENERGY in objectives:
        for kernel in kernels:
            if kernel.stored.threads == threads:
                joules = energy(workload, kernel, measured_on, settings)
                with database.write() as session:
                    tradeoffs.note_energy(session, kernel.id, joules)
