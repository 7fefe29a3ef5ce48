"""Measure how fast one lane and one builder work through a job.

    python -m benchmarks.throughput --trials 200

Reports trials per second, how long a trial holds the lane, and how long the lane is idle
although a candidate waits. Candidates come as annealing proposes them. All figures are
read from the database, where the fleet records its lanes' time.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tuner.db import jobs, lanes, targets, trials, workloads
from tuner.db.engine import Database, open_database
from tuner.db.lanes import LaneSpan
from tuner.target.detect import detect_cpu
from tuner.workers.fleet.messages import Limits
from tuner.workers.jobs.orchestrator import OrchestratorOptions, run_job
from tuner.workload.spec import parse_spec, to_document

SPEC = "matmul:M=512,N=512,K=512"
WARM = 8  # trials that are left out: the first ones wait for the compiler and the inputs
LEAST_RATE, MOST_HOLD_S, MOST_LOST = 5.0, 0.100, 0.01


@dataclass(frozen=True, kw_only=True)
class Throughput:
    trials: int
    trials_per_s: float  # from the first warm trial to the last
    hold_s: float  # mean time the lane is held by a trial
    busy: float  # share of that time in which the lane was held
    # Share in which it was not although a built candidate waited: messages on their way.
    idle_while_ready: float
    longest_idle_while_ready_s: float

    def faults(self) -> list[str]:
        problems = (
            []
            if self.trials_per_s >= LEAST_RATE
            else [f"{self.trials_per_s:.2f} trials a second, at least {LEAST_RATE:g}"]
        )
        problems += (
            []
            if self.hold_s <= MOST_HOLD_S
            else [f"a trial holds the lane for {1e3 * self.hold_s:.0f} ms"]
        )
        return problems + (
            []
            if self.idle_while_ready <= MOST_LOST
            else [f"idle while ready: {self.idle_while_ready:.1%}"]
        )


def throughput(folder: Path, trial_count: int, spec: str) -> Throughput:
    """Runs the job and reads what its lane did."""
    database = open_database(folder / "throughput.db")
    target, workload = detect_cpu(), parse_spec(spec)
    with database.write() as session:
        targets.remember(session, target)
        key = workloads.remember(session, workload, to_document(workload))
        new = jobs.NewJob(
            workloads=(key,),
            target=target.key,
            threads=1,
            trials=trial_count,
            strategy="annealing",
            seed=1,
        )
        job = jobs.create(session, new)[0]
    options = OrchestratorOptions(
        artifacts=folder / "artifacts", limits=Limits(race_rounds=3, race_budget_s=0.02)
    )
    report = run_job(database, job.id, options)
    if report.job.state != jobs.SUCCEEDED:
        raise SystemExit(f"the job {report.job.state}: {report.job.error}")
    result = _read(database, job.id)
    database.close()
    return result


def _read(database: Database, job_id: str) -> Throughput:
    now = datetime.now(UTC)
    with database.read() as session:
        everything = lanes.timeline(
            session, since=now - timedelta(hours=2), until=now, limit=100_000
        )
        recorded = trials.stored_of_task(session, job_id)
    spans = [span for span in everything if span.job == job_id]
    held = sorted(
        (span for span in spans if span.kind == "time" and span.trial is not None),
        key=lambda span: span.started_at,
    )[WARM:]
    ready = [span for span in spans if span.kind == "wait"]
    first, last = held[0].started_at, held[-1].ended_at
    whole_s = (last - first).total_seconds()
    done = [span for span in recorded if span.created_at >= first]
    gaps = list(
        zip([span.ended_at for span in held], [span.started_at for span in held[1:]], strict=False)
    )
    lost = [_waiting_s(ready, since, until) for since, until in gaps]
    return Throughput(
        trials=len(recorded),
        trials_per_s=round(len(done) / whole_s, 2),
        hold_s=round(sum(_seconds(span) for span in held) / len(held), 4),
        busy=round(sum(_seconds(span) for span in held) / whole_s, 3),
        idle_while_ready=round(sum(lost) / whole_s, 4),
        longest_idle_while_ready_s=round(max(lost, default=0.0), 4),
    )


def _seconds(span: LaneSpan) -> float:
    return (span.ended_at - span.started_at).total_seconds()


def _waiting_s(ready: Sequence[LaneSpan], since: datetime, until: datetime) -> float:
    """Seconds of the gap in which at least one candidate was built and waited."""
    starts = [
        max(span.started_at, since)
        for span in ready
        if span.started_at < until and span.ended_at > since
    ]
    return max(0.0, (until - min(starts)).total_seconds()) if starts else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--spec", default=SPEC)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = throughput(Path(folder), given.trials, given.spec)
    print(json.dumps(asdict(result), indent=1))
    print(*result.faults(), sep="\n")
    sys.exit(1 if result.faults() else 0)


if __name__ == "__main__":
    main()
