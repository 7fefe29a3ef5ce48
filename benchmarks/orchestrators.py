"""Let several orchestrators share the queue of one PostgreSQL, and kill one of them.

    python -m benchmarks.orchestrators postgresql://USER@HOST/EMPTY_DATABASE --jobs 50

Every job must be done once, and no trial measured again. Each orchestrator has a fleet
of its own on this machine's cores, so the figures speak of sharing, not of kernels.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tuner.db import events, jobs, targets, trials, workloads
from tuner.db.engine import Database, open_database
from tuner.target.detect import detect_cpu
from tuner.workers.fleet.messages import Limits
from tuner.workers.jobs.orchestrator import Orchestrator, OrchestratorOptions
from tuner.workload.spec import parse_spec, to_document

LEASE_S = 8.0  # short, so that a killed orchestrator's job is soon another's
QUICK = Limits(race_rounds=3, race_budget_s=0.02)
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What became of the queue."""

    states: Mapping[str, int]  # how many jobs ended in each state
    owners: Mapping[str, int]  # how many jobs each orchestrator claimed
    taken_over: Sequence[str]  # jobs that went on elsewhere after the kill
    seconds: float
    faults: Sequence[str]  # what must not be; empty


def queue(database: Database, count: int, budget: int) -> list[str]:
    """Jobs of small softmaxes, all different."""
    target, made = detect_cpu(), []
    with database.write() as session:
        targets.remember(session, target)
        for number in range(count):
            workload = parse_spec(f"softmax:M={9 + number},N=21")
            key = workloads.remember(session, workload, to_document(workload))
            new = jobs.NewJob(
                workloads=(key,),
                target=target.key,
                threads=1,
                trials=budget,
                strategy="random",
                seed=number,
            )
            made.append(jobs.create(session, new)[0].id)
    return made


def share(
    url: str, folder: Path, *, count: int, budget: int, orchestrators: int, timeout_s: float
) -> Shared:
    """Queue `count` jobs, start the orchestrators, and kill the first at work.

    It is killed once it has recorded trials of a job it holds.
    """
    database = open_database(url)
    made, started = queue(database, count, budget), time.monotonic()
    command = [sys.executable, "-m", "benchmarks.orchestrators", "--serve", url, str(folder)]
    names = [f"orchestrator-{number}" for number in range(orchestrators)]
    processes = [
        subprocess.Popen([*command, name], cwd=ROOT, stdin=subprocess.DEVNULL) for name in names
    ]
    try:
        held = _kill_at_work(database, made, names[0], processes[0], started + timeout_s)
        before = {job_id: _rows(database, job_id) for job_id in held}
        while time.monotonic() < started + timeout_s and set(_states(database, made)) & {
            jobs.QUEUED,
            jobs.RUNNING,
        }:
            time.sleep(0.2)
        seconds = time.monotonic() - started
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(timeout=60)
    states, claims = (
        Counter(_states(database, made)),
        {job_id: _claims(database, job_id) for job_id in made},
    )
    faults = [
        fault
        for job_id in made
        for fault in _faults(database, job_id, budget, before.get(job_id, {}))
    ]
    owners = Counter(owner for owners_of_job in claims.values() for owner in owners_of_job)
    taken_over = [job_id for job_id in held if len(claims[job_id]) > 1]
    database.close()
    return Shared(
        states=dict(states),
        owners=dict(owners),
        taken_over=taken_over,
        seconds=seconds,
        faults=faults,
    )


def _kill_at_work(
    database: Database,
    made: Sequence[str],
    name: str,
    process: subprocess.Popen[bytes],
    deadline: float,
) -> list[str]:
    """Kill the orchestrator in the middle of a job and return the jobs it held."""
    while time.monotonic() < deadline:
        with database.read() as session:
            held = [
                job.id
                for job in (jobs.get(session, queued) for queued in made)
                if job.lease_owner == name
            ]
        if any(_rows(database, job_id) for job_id in held):
            process.kill()
            process.wait()
            return held
        time.sleep(0.02)
    raise TimeoutError(f"{name} recorded no trial in time")


def _states(database: Database, made: Sequence[str]) -> list[str]:
    with database.read() as session:
        return [jobs.get(session, job_id).state for job_id in made]


def _rows(database: Database, job_id: str) -> dict[int, object]:
    with database.read() as session:
        return {
            entry.trial.number: (entry.trial, entry.created_at)
            for entry in trials.stored_of_task(session, job_id)
        }


def _claims(database: Database, job_id: str) -> list[str]:
    """Who claimed the job, in order."""
    with database.read() as session:
        recorded = events.after(session, job_id, 0)
    return [
        str(event.data["owner"])
        for event in recorded
        if event.kind == jobs.RUNNING and "owner" in event.data
    ]


def _faults(
    database: Database, job_id: str, budget: int, before: Mapping[int, object]
) -> list[str]:
    """What is wrong with a finished job.

    Trials lost, doubled or changed, or an end that was announced twice.
    """
    rows, faults = _rows(database, job_id), []
    if sorted(rows) != list(range(len(rows))) or not 1 <= len(rows) <= budget:
        faults.append(f"{job_id}: trials {sorted(rows)} of a budget of {budget}")
    if any(rows.get(number) != row for number, row in before.items()):
        faults.append(f"{job_id}: a trial recorded before the kill was lost or measured again")
    with database.read() as session:
        error = jobs.get(session, job_id).error
        kinds = Counter(event.kind for event in events.after(session, job_id, 0))
    faults += [] if error is None else [f"{job_id}: {error}"]
    wrong = {"queued": 1, "succeeded": 1, "kernel": 1, "trial": len(rows)}
    faults += [
        f"{job_id}: {kinds[kind]} events {kind}, not {count}"
        for kind, count in wrong.items()
        if kinds[kind] != count
    ]
    return faults


def serve(url: str, folder: str, owner: str) -> None:
    """One orchestrator, until SIGTERM."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    database = open_database(url, create=False)
    options = OrchestratorOptions(
        artifacts=Path(folder) / "artifacts", limits=QUICK, lease_s=LEASE_S, owner=owner
    )
    Orchestrator(database, detect_cpu(), options).serve(
        stop, on_error=lambda text: print(text, file=sys.stderr)
    )
    database.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url", nargs="?")
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--orchestrators", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=3600.0, help="seconds")
    parser.add_argument(
        "--serve", nargs=3, metavar=("URL", "DIR", "NAME"), help="how orchestrators are started"
    )
    given = parser.parse_args()
    if given.serve:
        serve(*given.serve)
        return
    if not given.url:
        parser.error("name an empty PostgreSQL database")
    with tempfile.TemporaryDirectory() as folder:
        shared = share(
            given.url,
            Path(folder),
            count=given.jobs,
            budget=given.trials,
            orchestrators=given.orchestrators,
            timeout_s=given.timeout,
        )
    print(json.dumps(asdict(shared), indent=1))
    sys.exit(1 if shared.faults or set(shared.states) != {jobs.SUCCEEDED} else 0)


if __name__ == "__main__":
    main()
