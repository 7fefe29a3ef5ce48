"""Makes and runs small jobs for the fleet's tests; as a program: `python -m
tests.support.fleet_job DIR JOB [URL [LEASE_S]]`.

The program claims the job even where a lease is still open, as `tuner resume` does for
a holder that is known to be dead.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.targets import host_target
from tuner.db import artifacts, jobs, targets, tasks, workloads
from tuner.db.engine import Database, open_database
from tuner.export.artifacts import ArtifactStore
from tuner.workers.fleet.messages import Limits
from tuner.workers.jobs.options import LEASE_S
from tuner.workers.jobs.orchestrator import JobReport, OrchestratorOptions, run_job
from tuner.workers.jobs.progress import Observer, unobserved
from tuner.workload.spec import parse_spec, to_document

FOREIGN_SPEC = "elementwise:M=32,N=48,act=relu"
FOREIGN_KERNEL = """
int elementwise_m32_n48_relu(const float *x, float *y) {
  for (int i = 0; i < 1536; ++i) y[i] = x[i] != x[i] || x[i] > 0 ? x[i] : 0;
  return 0;
}
"""
QUICK = Limits(race_rounds=3, race_budget_s=0.02)


def open_in(directory: Path) -> Database:
    return open_database(directory / "fleet.db")


def queue_job(
    database: Database,
    specs: Sequence[str],
    *,
    trials: int,
    strategy: str = "random",
    threads: int = 1,
) -> str:
    target = host_target()
    with database.write() as session:
        targets.remember(session, target)
        parsed = [parse_spec(spec) for spec in specs]
        keys = tuple(
            workloads.remember(session, workload, to_document(workload)) for workload in parsed
        )
        new = jobs.NewJob(
            workloads=keys,
            target=target.key,
            threads=threads,
            trials=trials,
            strategy=strategy,
            seed=1,
        )
        job, _ = jobs.create(session, new)
    return job.id


def queue_foreign(database: Database, folder: Path, source: str, kind: str = jobs.JUDGE) -> str:
    """Queues a job that judges the source, or one of another kind for the same workload."""
    digest = ArtifactStore(folder / "artifacts").put(source.encode())
    target, workload = host_target(), parse_spec(FOREIGN_SPEC)
    with database.write() as session:
        targets.remember(session, target)
        key = workloads.remember(session, workload, to_document(workload))
        artifacts.remember(session, sha256=digest, size_bytes=len(source), kind="source")
        new = jobs.NewJob(
            workloads=(key,),
            target=target.key,
            threads=1,
            trials=1,
            kind=kind,
            settings={tasks.SOURCE: digest},
        )
        return jobs.create(session, new)[0].id


def run_here(
    database: Database,
    job_id: str,
    directory: Path,
    *,
    limits: Limits | None = None,
    observer: Observer = unobserved,
    lease_s: float = LEASE_S,
) -> JobReport:
    options = OrchestratorOptions(
        artifacts=directory / "artifacts", limits=limits or QUICK, lease_s=lease_s
    )
    return run_job(database, job_id, options, observer=observer, take_over=True)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    opened = open_database(sys.argv[3]) if len(sys.argv) > 3 else open_in(folder)
    report = run_here(
        opened, sys.argv[2], folder, lease_s=float(sys.argv[4]) if len(sys.argv) > 4 else LEASE_S
    )
    print(report.job.state)
    opened.close()
