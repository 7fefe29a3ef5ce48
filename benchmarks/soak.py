"""Run job after job of trials that are next to nothing, and watch every process.

    python -m benchmarks.soak --trials 20000

The trials go through the real search loop, driver, actors, runner processes and
recording; benchmarks/noop.py says what is left out. Memory, descriptors and zombies are
watched. Once warm, over the last three quarters of a long run, no process may grow by a
KiB a trial, and descriptors and zombies must stay as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median

import psutil

from benchmarks.chaos import queue
from tuner.db import events, jobs, leases, trials
from tuner.db.engine import Database, open_database
from tuner.measure.outcome import Timed
from tuner.spaces.by_target import space_of
from tuner.target.detect import detect_cpu
from tuner.tuning import Budget, TrialRecorded, tune
from tuner.workers.fleet import machine
from tuner.workers.fleet.handle import Fleet
from tuner.workers.fleet.messages import FleetPlan, Limits, Problem, Report
from tuner.workers.fleet.ray_measurer import RayMeasurer
from tuner.workers.jobs.heartbeat import Heartbeat
from tuner.workers.jobs.search import searcher_for
from tuner.workload.spec import parse_spec

ROOT = Path(__file__).resolve().parents[1]
WARM = (
    3000  # trials by which allocators and caches have grown to what they need, however many follow
)
SETTLED = 500  # trials after which a process that took another's place has grown to what it needs
JOB = 500  # trials of each job: one follows the other on the same fleet
SPEC = "matmul:M=96,N=96,K=96"  # 400,000 configs
LEASE_S = 60.0
LOOK_S = 2.0
MOST_GROWTH = 1024.0  # bytes a trial
# that a process may have more of at the end: a file or socket that happens to be open
# when it is looked at
MOST_DESCRIPTORS = 8
KINDS: Mapping[str, str] = {  # by what stands in a command line or title, the first that fits
    "benchmarks.soak": "orchestrator",
    "benchmarks.noop": "driver",
    "ray::NoopBuilder": "builder",
    "ray::NoopRunner": "runner",
    "tuner.workers.fleet.build_server": "compiler",
    "tuner.measure.parent": "runner process",
    "gcs_server": "Ray: gcs",
    "raylet/raylet": "Ray: raylet",
    "ray::": "Ray: agents",
    "ray/": "Ray: others",
}


@dataclass(frozen=True, slots=True)
class Look:
    """One process at one moment."""

    trials: int
    resident_bytes: int
    descriptors: int


@dataclass(frozen=True, kw_only=True)
class Growth:
    """Of one process over the trials once all is warm."""

    kind: str
    bytes_per_trial: float
    resident_bytes: int  # at the end
    descriptors: tuple[int, int]  # once warm, and at the end


@dataclass(frozen=True, kw_only=True)
class Soaked:
    recorded: int
    timed: int
    seconds: float
    trials_per_s: float
    growth: Sequence[Growth]
    zombies: tuple[int, int]  # most seen until all is warm, and after it

    def faults(self, expected: int) -> list[str]:
        """What must not be."""
        problems = (
            []
            if self.recorded == self.timed == expected
            else [f"{self.recorded} recorded and {self.timed} timed of {expected}"]
        )
        for entry in self.growth:
            if entry.bytes_per_trial >= MOST_GROWTH:
                problems.append(f"{entry.kind} grows by {entry.bytes_per_trial:.0f} bytes a trial")
            if entry.descriptors[1] > entry.descriptors[0] + MOST_DESCRIPTORS:
                problems.append(
                    f"{entry.kind} has {entry.descriptors[1]} descriptors, {entry.descriptors[0]} "
                    f"once warm"
                )
        return problems + (
            [f"zombies: {self.zombies}"] if self.zombies[1] > self.zombies[0] + 1 else []
        )


def soak(folder: Path, trial_count: int, *, timeout_s: float) -> Soaked:
    """Runs the trials in a program of its own and watches it, at most so long."""
    database = open_database(folder / "soak.db")
    made, started = (
        [
            queue(database, min(JOB, trial_count - first), SPEC)
            for first in range(0, trial_count, JOB)
        ],
        time.monotonic(),
    )
    command = [sys.executable, "-m", "benchmarks.soak", "--jobs", str(folder), *made]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL)
    looks: dict[psutil.Process, list[Look]] = defaultdict(list)
    kinds: dict[psutil.Process, str] = {}
    zombies: list[tuple[int, int]] = []
    try:
        while process.poll() is None:
            if time.monotonic() - started > timeout_s:
                break  # what was reached is looked at, and said
            time.sleep(LOOK_S)
            with database.read() as session:
                done = sum(jobs.get(session, job_id).tasks[0].trials_done for job_id in made)
            zombies.append((done, _look(process.pid, done, looks, kinds)))
        seconds = time.monotonic() - started
        with database.read() as session:
            stored = [trial for job_id in made for trial in trials.of_task(session, job_id)]
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
        database.close()
    return Soaked(
        recorded=len(stored),
        timed=sum(isinstance(trial.outcome, Timed) for trial in stored),
        seconds=round(seconds, 1),
        trials_per_s=round(len(stored) / seconds, 1),
        growth=_growth(looks, kinds, len(stored)),
        zombies=(
            _most(zombies, 0, warm(len(stored))),
            _most(zombies, warm(len(stored)), len(stored)),
        ),
    )


def _look(
    root: int, done: int, looks: dict[psutil.Process, list[Look]], kinds: dict[psutil.Process, str]
) -> int:
    """Note what each process holds now, and return the number of zombies."""
    dead = 0
    with suppress(psutil.NoSuchProcess):
        program = psutil.Process(root)
        for process in (program, *program.children(recursive=True)):
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if process.status() == psutil.STATUS_ZOMBIE:
                    dead += 1
                    continue
                # An actor gets its title some time after its process has started.
                command_line = " ".join(process.cmdline())
                kinds[process] = next(
                    (kind for text, kind in KINDS.items() if text in command_line),
                    command_line[:40],
                )
                looks[process].append(Look(done, process.memory_info().rss, process.num_fds()))
    return dead


def warm(trials: int) -> float:
    """Trials of so many that are not counted."""
    return max(trials / 4, min(WARM, trials / 2))


def _most(counts: Sequence[tuple[int, int]], first: float, last: float) -> int:
    return max((count for done, count in counts if first < done <= last), default=0)


def _growth(
    looks: Mapping[psutil.Process, Sequence[Look]],
    kinds: Mapping[psutil.Process, str],
    trial_count: int,
) -> list[Growth]:
    """The growth of each process from end to end, by medians.

    Only processes that were there for a quarter of the trials count.
    """
    grown = []
    for process, samples in looks.items():
        settled = max(warm(trial_count), samples[0].trials + SETTLED)
        later = [look for look in samples if look.trials >= settled]
        if (
            len(later) < 4
            or later[-1].trials - later[0].trials < (trial_count - warm(trial_count)) / 4
        ):
            continue  # a candidate's child, or the rest of what was recycled
        share = max(1, len(later) // 10)
        first, last = later[:share], later[-share:]
        over = median(look.trials for look in last) - median(look.trials for look in first)
        more = median(look.resident_bytes for look in last) - median(
            look.resident_bytes for look in first
        )
        descriptors = (
            int(median(look.descriptors for look in first)),
            int(median(look.descriptors for look in last)),
        )
        grown.append(
            Growth(
                kind=kinds[process],
                bytes_per_trial=round(more / max(over, 1.0), 1),
                resident_bytes=later[-1].resident_bytes,
                descriptors=descriptors,
            )
        )
    return grown


def work(folder: Path, made: Sequence[str]) -> None:
    """Run the program that is watched: an orchestrator's loop over the jobs.

    There are no promotions at the ends of jobs.
    """
    database = open_database(folder / "soak.db", create=False)
    here = machine.plan_machine(machine.usable_nodes(), threads=1)
    plan = FleetPlan(
        lanes=here.lanes,
        builder_cores=here.builder_cores,
        alternates=here.alternates,
        limits=Limits(),
        storage="",
    )
    fleet = Fleet(plan, driver="benchmarks.noop")
    fleet.start()
    try:
        fleet.wait_ready()
        os.sched_setaffinity(0, here.builder_cores)
        for job_id in made:
            run(database, fleet, job_id)
    finally:
        fleet.close()
    database.close()


def run(database: Database, fleet: Fleet, job_id: str) -> None:
    """One job to its end."""
    with database.write("claim") as session:
        job, lease = leases.claim(
            session, job_id, owner="soak", lifetime=timedelta(seconds=LEASE_S)
        )
    problem = Problem(workload=parse_spec(SPEC), target=detect_cpu(), threads=1)
    space = space_of(problem.workload, problem.target, 1)
    measurer = RayMeasurer(fleet, problem)
    searcher, budget = searcher_for(space, strategy="random", seed=1), Budget(trials=job.trials)
    with Heartbeat(database, lease, lifetime_s=LEASE_S):
        for event in tune(
            space=space.space,
            searcher=searcher,
            measurer=measurer,
            budget=budget,
            clock=time.monotonic,
        ):
            if isinstance(event, TrialRecorded):
                record(database, lease, event, measurer.report(event.trial.number))
    measurer.close()
    with database.write("finish") as session:
        leases.finish(session, lease, jobs.SUCCEEDED)


def record(database: Database, lease: leases.Lease, event: TrialRecorded, report: Report) -> None:
    with database.write("trial") as session:
        trials.record(
            session,
            lease,
            event.trial,
            round=event.round,
            worker=report.worker,
            attempts=report.attempts,
        )
        events.append(session, lease.job_id, "trial", {"task": 0, "number": event.trial.number})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--timeout", type=float, default=7200.0, help="seconds")
    parser.add_argument(
        "--jobs", nargs="+", metavar="WORD", help="how the watched program is started"
    )
    given = parser.parse_args()
    if given.jobs:
        work(Path(given.jobs[0]), given.jobs[1:])
        return
    with tempfile.TemporaryDirectory() as folder:
        soaked = soak(Path(folder), given.trials, timeout_s=given.timeout)
    print(json.dumps(asdict(soaked), indent=1))
    faults = soaked.faults(given.trials)
    print(*faults, sep="\n")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
