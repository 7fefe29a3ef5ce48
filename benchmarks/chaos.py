"""Kill workers and Ray's node while a job of short trials runs, and lose calls.

    python -m benchmarks.chaos --trials 500

Every trial must be recorded, none twice. A minute after the end nothing may be left: no
process, no folder, no shared memory.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from benchmarks.family import Family, of_kind, wait_until_gone
from tuner.db import events, jobs, targets, trials, workloads
from tuner.db.engine import Database, open_database
from tuner.measure.outcome import Failed, FailureKind
from tuner.target.detect import detect_cpu
from tuner.workers.fleet.messages import Limits
from tuner.workers.jobs.orchestrator import OrchestratorOptions, run_job
from tuner.workload.spec import parse_spec, to_document

ROOT = Path(__file__).resolve().parents[1]
SPEC = "matmul:M=48,N=40,K=32"
QUICK = Limits(race_rounds=3, race_budget_s=0.02)
EVERY_S = 5.0  # between two kills
VICTIMS = (
    "ray::Builder",
    "ray::Runner",
    "tuner.workers.fleet.build_server",
    "tuner.measure.parent",
)
RAYLET = "/raylet/raylet "
RETURN_S = 60.0  # in which everything must be given back
# Calls of Ray's: percent that get lost on the way there, and on the way back.
FAILING: Mapping[str, tuple[int, int]] = {
    "CoreWorkerService.grpc_client.PushTask": (1, 1),  # a batch, to a builder or a lane
    "NodeManagerService.grpc_client.RequestWorkerLease": (10, 10),
}
MOST_FAILURES = 1000  # of each, in each process


@dataclass(frozen=True, kw_only=True)
class Survived:
    """What became of the job."""

    state: str
    recorded: int
    twice: int  # trials or configs that were recorded a second time
    outcomes: Mapping[str, int]
    quarantined: int
    retried: int  # trials that took more than one attempt
    kills: Mapping[str, int]  # by what was killed
    processes: int  # there were in all
    seconds: float
    returned_s: float  # from the end of the job's program until all was given back
    left: Sequence[str]  # what was not

    def faults(self, expected: int) -> list[str]:
        """What must not be."""
        problems = [] if self.state == jobs.SUCCEEDED else [f"the job {self.state}"]
        problems += (
            [] if self.recorded == expected else [f"{self.recorded} of {expected} trials recorded"]
        )
        problems += [f"{self.twice} recorded twice"] if self.twice else []
        return problems + [
            f"{leftover} was not given back within {RETURN_S:g} s" for leftover in self.left
        ]


def failures() -> Mapping[str, Mapping[str, int]]:
    """As Ray's RAY_testing_rpc_failure wants to have it."""
    return {
        call: {
            "num_failures": MOST_FAILURES,
            "req_failure_prob": there,
            "resp_failure_prob": back,
            "in_flight_failure_prob": 0,
        }
        for call, (there, back) in FAILING.items()
    }


def queue(database: Database, trial_count: int, spec: str = SPEC) -> str:
    """Queue a job of one workload and return its id."""
    target, workload = detect_cpu(), parse_spec(spec)
    with database.write() as session:
        targets.remember(session, target)
        key = workloads.remember(session, workload, to_document(workload))
        new = jobs.NewJob(
            workloads=(key,),
            target=target.key,
            threads=1,
            trials=trial_count,
            strategy="random",
            seed=1,
        )
        return jobs.create(session, new)[0].id


def torment(folder: Path, trial_count: int, *, timeout_s: float, seed: int = 0) -> Survived:
    """Run the job in a program of its own and kill its workers meanwhile.

    All temporary files of the program lie in a private folder.
    """
    database = open_database(folder / "chaos.db")
    scratch = Path(tempfile.mkdtemp(prefix="chaos-", dir="/tmp"))
    job_id, started = queue(database, trial_count), time.monotonic()
    environment = {
        **os.environ,
        "TMPDIR": str(scratch),
        "RAY_testing_rpc_failure": json.dumps(failures()),
    }
    command = [sys.executable, "-m", "benchmarks.chaos", "--job", str(folder), job_id]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL)
    try:
        with Family(process.pid) as family:
            kills = _kill_until_it_ends(
                process,
                family,
                database,
                job_id,
                trial_count,
                started + timeout_s,
                random.Random(seed),
            )
            seconds = time.monotonic() - started
            returned_s, left = wait_until_gone(family, scratch, RETURN_S)
            left += [f"control group {folder.name}" for folder in family.control_groups()]
            return _survived(database, job_id, kills, family.count, seconds, returned_s, left)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        database.close()
        # Empty unless something was left, which has been reported.
        shutil.rmtree(scratch, ignore_errors=True)


def _kill_until_it_ends(
    process: subprocess.Popen[bytes],
    family: Family,
    database: Database,
    job_id: str,
    trial_count: int,
    deadline: float,
    rng: random.Random,
) -> Counter[str]:
    kills: Counter[str] = Counter()
    raylets_at = [trial_count // 3, 2 * trial_count // 3]
    next_kill = time.monotonic() + EVERY_S
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
        if time.monotonic() < next_kill:
            continue
        next_kill += EVERY_S
        with database.read() as session:
            done = jobs.get(session, job_id).tasks[0].trials_done
        raylet = bool(raylets_at) and done >= raylets_at[0]
        kind = RAYLET if raylet else rng.choice(VICTIMS)
        candidates = of_kind(family.look(), kind)
        if candidates and done:
            with suppress(psutil.NoSuchProcess):
                rng.choice(candidates).kill()
                kills[kind.strip("/ ")] += 1
                raylets_at = raylets_at[1:] if raylet else raylets_at
    return kills


def _survived(
    database: Database,
    job_id: str,
    kills: Mapping[str, int],
    processes: int,
    seconds: float,
    returned_s: float,
    left: list[str],
) -> Survived:
    with database.read() as session:
        state = jobs.get(session, job_id).state
        stored = trials.stored_of_task(session, job_id)
        announced = Counter(
            event.data["number"]
            for event in events.after(session, job_id, 0)
            if event.kind == "trial"
        )
    configs = Counter(tuple(sorted(entry.trial.config.items())) for entry in stored)
    outcomes = Counter(
        entry.trial.outcome.kind.value if isinstance(entry.trial.outcome, Failed) else "ok"
        for entry in stored
    )
    return Survived(
        state=state,
        recorded=len({entry.trial.number for entry in stored}),
        twice=sum(count - 1 for count in (*configs.values(), *announced.values())),
        outcomes=dict(outcomes),
        quarantined=sum(entry.quarantined for entry in stored),
        retried=sum(entry.attempts > 1 for entry in stored),
        kills=dict(kills),
        processes=processes,
        seconds=round(seconds, 1),
        returned_s=round(returned_s, 1),
        left=left,
    )


def work(folder: Path, job_id: str) -> None:
    """The job's own program."""
    database = open_database(folder / "chaos.db", create=False)
    report = run_job(
        database, job_id, OrchestratorOptions(artifacts=folder / "artifacts", limits=QUICK)
    )
    database.close()
    print(report.job.state, report.job.error or "", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--timeout", type=float, default=1200.0, help="seconds for the whole job")
    parser.add_argument("--seed", type=int, default=0, help="of who is killed")
    parser.add_argument(
        "--job", nargs=2, metavar=("DIR", "JOB"), help="how the job's own program is started"
    )
    given = parser.parse_args()
    if given.job:
        work(Path(given.job[0]), given.job[1])
        return
    with tempfile.TemporaryDirectory() as folder:
        survived = torment(Path(folder), given.trials, timeout_s=given.timeout, seed=given.seed)
    print(json.dumps(asdict(survived), indent=1))
    faults = survived.faults(given.trials)
    print(
        f"{FailureKind.INFRASTRUCTURE}: "
        f"{survived.outcomes.get(FailureKind.INFRASTRUCTURE.value, 0)}",
        *faults,
        sep="\n",
    )
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
