"""Serve three jobs of different size on this machine's own fleet, as `tuner serve` does."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.sharing.virtual import jain
from tuner.db import jobs, lanes, targets, trials, workloads
from tuner.db.engine import Database, open_database
from tuner.db.lanes import LaneSpan
from tuner.target.detect import detect_cpu
from tuner.workers.fleet.messages import Limits
from tuner.workers.fleet.policy import PolicyName
from tuner.workers.jobs.orchestrator import Orchestrator, OrchestratorOptions
from tuner.workload.spec import parse_spec, to_document

QUICK = Limits(race_rounds=3, race_budget_s=0.05)  # promotion is not what is looked at here


@dataclass(frozen=True, slots=True, kw_only=True)
class RealJob:
    name: str
    spec: str
    trials: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What sharing came to under one policy."""

    policy: PolicyName
    states: Mapping[str, str]
    trials: Mapping[str, int]  # recorded of each job
    # Jain's index of lane time from the first candidate on a lane to the first end of a
    # search
    fairness: float
    completed_s: Mapping[str, float]  # from the first candidate on a lane to the job's end, by job
    occupancy: float  # share of the lanes' time held by candidates, until the last search ended
    # From one job's last result on a lane to the next job's first candidate there, once it
    # was built.
    switches_s: Sequence[float]
    stays_s: Sequence[float]  # the same between candidates of one job
    # (Build, lane) seconds of each job's trials.
    durations: Mapping[str, Sequence[tuple[float, float]]]

    @property
    def mean_completion_s(self) -> float:
        return statistics.fmean(self.completed_s.values())


def serve(
    folder: Path, real_jobs: Sequence[RealJob], policy: PolicyName, *, timeout_s: float
) -> Measured:
    """Queues the jobs in their order and serves them until all have ended or time is up."""
    database = open_database(folder / f"{policy}.db")
    try:
        ids = _queue(database, real_jobs)
        stop, errors = threading.Event(), list[str]()
        options = OrchestratorOptions(
            artifacts=folder / "artifacts",
            limits=QUICK,
            policy=policy,
            running_jobs=len(real_jobs),
            owner=f"sharing-{policy}",
        )
        service = Orchestrator(database, detect_cpu(), options)
        thread = threading.Thread(
            target=service.serve, args=(stop,), kwargs={"on_error": errors.append}
        )
        thread.start()
        deadline = time.monotonic() + timeout_s
        try:
            while time.monotonic() < deadline and not _over(database, ids):
                time.sleep(0.5)
        finally:
            stop.set()
            thread.join()
        if errors:
            raise RuntimeError("; ".join(errors))
        return _measured(database, ids, policy)
    finally:
        database.close()


def _queue(database: Database, real_jobs: Sequence[RealJob]) -> dict[str, str]:
    """The jobs' ids by name."""
    target, ids = detect_cpu(), {}
    for seed, job in enumerate(real_jobs):
        with database.write() as session:
            targets.remember(session, target)
            workload = parse_spec(job.spec)
            key = workloads.remember(session, workload, to_document(workload))
            new = jobs.NewJob(
                workloads=(key,), target=target.key, threads=1, trials=job.trials, seed=seed
            )
            ids[job.name] = jobs.create(session, new)[0].id
        time.sleep(0.01)  # ids sort by milliseconds, and jobs are claimed in that order
    return ids


def _over(database: Database, ids: Mapping[str, str]) -> bool:
    with database.read() as session:
        return all(jobs.get(session, job).state in jobs.FINISHED for job in ids.values())


def _measured(database: Database, ids: Mapping[str, str], policy: PolicyName) -> Measured:
    now = datetime.now(UTC)
    with database.read() as session:
        records = {name: jobs.get(session, job) for name, job in ids.items()}
        spans = lanes.timeline(session, since=now - timedelta(hours=1), until=now, limit=1_000_000)
        recorded = {name: trials.of_task(session, job, 0) for name, job in ids.items()}
    names = {job: name for name, job in ids.items()}
    held_or_raced = [
        replace(span, job=names[span.job or ""]) for span in spans if span.kind == "time"
    ]
    held = [span for span in held_or_raced if span.trial is not None]
    ready = {
        (span.lane, span.job, span.trial): span.started_at for span in spans if span.kind == "wait"
    }
    begun = min(span.started_at for span in held)
    ended = {name: max(span.ended_at for span in held if span.job == name) for name in ids}
    first_end, last_end = min(ended.values()), max(ended.values())
    shares = [_overlap_s(held, name, first_end) for name in ids]
    total = sum(_overlap_s(held, name, last_end) for name in ids)
    count = len({span.lane for span in held})
    switches, stays = _gaps(
        held_or_raced,
        {
            (lane, names[job or ""], trial): built_at
            for (lane, job, trial), built_at in ready.items()
        },
    )
    return Measured(
        policy=policy,
        states={name: job.state for name, job in records.items()},
        trials={name: len(stored) for name, stored in recorded.items()},
        fairness=jain(shares),
        completed_s={
            name: ((job.finished_at or now) - begun).total_seconds()
            for name, job in records.items()
        },
        occupancy=total / (count * (last_end - begun).total_seconds()),
        switches_s=switches,
        stays_s=stays,
        durations={
            name: [(trial.build_s, trial.measure_s) for trial in stored if trial.measure_s]
            for name, stored in recorded.items()
        },
    )


def _overlap_s(held: Sequence[LaneSpan], name: str, until: datetime) -> float:
    return sum(
        max(0.0, (min(span.ended_at, until) - span.started_at).total_seconds())
        for span in held
        if span.job == name
    )


def _gaps(
    held: Sequence[LaneSpan], ready: Mapping[tuple[str, str | None, int | None], datetime]
) -> tuple[list[float], list[float]]:
    """Seconds that a lane stood still although the next candidate was built.

    First where the job changed, then where it did not. A race has the machine to itself
    and holds the lane for its job, so what follows counts from its end.
    """
    switches, stays = list[float](), list[float]()
    last: dict[str, LaneSpan] = {}
    for span in sorted(held, key=lambda held_span: held_span.started_at):
        before = last.get(span.lane)
        last[span.lane] = span
        built = ready.get((span.lane, span.job, span.trial))
        if before is not None and built is not None:
            gap = (span.started_at - max(before.ended_at, built)).total_seconds()
            (stays if before.job == span.job else switches).append(gap)
    return switches, stays
