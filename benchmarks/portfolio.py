"""Race one function for a range of rows against kernels tuned for single row counts.

    python -m benchmarks.portfolio -o FOLDER [--trials 32] [--seconds 10] [--count 40] [SPEC]
    python -m benchmarks.portfolio -o FOLDER --slot 500
    python -m benchmarks.portfolio -o FOLDER --report

First the members of the family are tuned and exported as one library. Then a kernel is
tuned for each random number of rows, with the same budget, in a database of its own, so
that neither helps the other. The two race in turn, in fresh processes. The default
schedule was raced when the single kernel was promoted, and is compared through it.

A run that is stopped, or whose slot of seconds is over, goes on where it was: jobs
resume, and races that are in the log are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path

import numpy as np

from tuner.app.export.portfolio import members_to_tune, portfolio_kernel, rows_checked
from tuner.app.jobs.lifecycle import requeue, results, run, submit
from tuner.app.machine import checked_target, with_limits
from tuner.db import jobs
from tuner.db.engine import Database, open_database
from tuner.db.kernels import Kernel
from tuner.export.artifacts import ArtifactStore
from tuner.export.library import export_library
from tuner.measure.assignment import Assignment
from tuner.measure.race import Contender, race
from tuner.measure.runner import RunnerProcess
from tuner.measure.statistics import race_median_ci95, ratio_of_medians
from tuner.runtime.loader import Library
from tuner.settings import Settings, load_settings
from tuner.target.target import Target
from tuner.workers.fleet.machine import plan_machine, usable_nodes
from tuner.workers.jobs.orchestrator import Interruption
from tuner.workload.rows import member
from tuner.workload.spec import Portfolio, parse_portfolio
from tuner.workload.workload import Workload

SPEC = "matmul:M=1..512,N=1024,K=1024"
ROUNDS = 5
TUNING_SHARE = 0.7  # of a slot; the rest is for races of what is tuned by then
PORTFOLIO, EACH = "portfolio", "each"


@dataclass(frozen=True, kw_only=True)
class Setup:
    folder: Path
    family: Portfolio
    extents: tuple[int, ...]  # the random numbers of rows
    settings: Settings
    tuned_until: float  # on the monotonic clock: nothing is tuned then, races begin
    ends: float  # of the slot

    @property
    def log(self) -> Path:
        return self.folder / "races.jsonl"

    def settings_of(self, part: str) -> Settings:
        """Database and artifacts of one side."""
        return self.settings.model_copy(
            update={
                "db": f"sqlite:///{self.folder / part}.db",
                "artifacts": self.folder / f"{part}-artifacts",
                "data_dir": self.folder / part,
            }
        )


def main(arguments: Sequence[str] | None = None) -> None:
    given = _parser().parse_args(arguments)
    setup = _setup(given)
    if given.report:
        print(report(setup))
        return
    library = setup.folder / "kit" / "lib" / "libkit.so"
    target = checked_target(setup.settings)
    if not library.exists():
        settings, database = _opened(setup, PORTFOLIO)
        full = with_limits(database, target)
        chosen = members_to_tune(setup.family, full, settings.threads)
        if not _tuned(setup, PORTFOLIO, database, chosen, full, settings):
            return
        kernel = portfolio_kernel(
            database, setup.family, full, settings.threads, ArtifactStore(settings.artifacts)
        )
        export_library([kernel], setup.folder / "kit", "kit")
        database.close()
    settings, database = _opened(setup, EACH)
    members = [member(setup.family, extent) for extent in setup.extents]
    _tuned(setup, EACH, database, members, with_limits(database, target), settings)
    kernels = {
        outcome.workload.key: outcome.kernel
        for outcome in results(database, _job(setup.folder / f"{EACH}.job"))
    }
    raced = {row["rows"] for row in _rows(setup)}
    for extent, workload in zip(setup.extents, members, strict=True):
        kernel_of = kernels[workload.key]
        if time.monotonic() >= setup.ends:
            print("the slot is over; run again to go on")
            break
        if extent not in raced and kernel_of is not None:
            _race(setup, library, extent, workload, kernel_of, settings)
    print(report(setup))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("spec", nargs="?", default=SPEC, metavar="SPEC")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, help="folder of databases, library and log"
    )
    parser.add_argument(
        "--trials", type=int, default=32, help="for each member and each single kernel (default 32)"
    )
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="of search for each (default 10)"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--count", type=int, default=40, help="random numbers of rows (default 40)")
    parser.add_argument("--seed", type=int, default=2026, help="of the numbers of rows")
    parser.add_argument(
        "--slot", type=float, default=1e9, help="seconds after which nothing new is begun"
    )
    parser.add_argument(
        "--report", action="store_true", help="run nothing; the table of what was raced"
    )
    return parser


def _setup(given: argparse.Namespace) -> Setup:
    folder: Path = given.output.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TUNER_DATA_DIR"] = str(folder / "data")
    settings = load_settings(
        {"trials": given.trials, "seconds": given.seconds, "threads": given.threads}
    ).values
    family = parse_portfolio(given.spec)
    rows = rows_checked(family)
    drawn = np.random.default_rng(given.seed).choice(
        np.arange(rows.low, rows.high + 1), size=given.count, replace=False
    )
    return Setup(
        folder=folder,
        family=family,
        extents=tuple(int(extent) for extent in drawn),
        settings=settings,
        tuned_until=time.monotonic() + TUNING_SHARE * given.slot,
        ends=time.monotonic() + given.slot,
    )


def _opened(setup: Setup, part: str) -> tuple[Settings, Database]:
    settings = setup.settings_of(part)
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    return settings, open_database(settings.db)


def _job(path: Path) -> str:
    return path.read_text().strip()


def _tuned(
    setup: Setup,
    part: str,
    database: Database,
    members: Sequence[Workload],
    target: Target,
    settings: Settings,
) -> bool:
    """Tune these workloads in one job, or what is left of it.

    Gives whether all are done.
    """
    note = setup.folder / f"{part}.job"
    if not note.exists():
        note.write_text(submit(database, members, target, settings).id)
    with database.read() as session:
        job = jobs.get(session, _job(note))
    if job.state != jobs.SUCCEEDED:
        if job.state != jobs.QUEUED:
            requeue(database, job.id)
        job = run(
            database,
            job.id,
            settings,
            interrupt=lambda: (
                Interruption.CANCEL if time.monotonic() >= setup.tuned_until else None
            ),
        ).job
    done = [outcome.kernel is not None for outcome in results(database, job.id)]
    print(f"{part}: job {job.id} {job.state}, {sum(done)} of {len(done)} kernels", flush=True)
    return job.state == jobs.SUCCEEDED


def _race(
    setup: Setup, library: Path, extent: int, workload: Workload, kernel: Kernel, settings: Settings
) -> None:
    lane = plan_machine(usable_nodes(), threads=settings.threads, declared=settings.lanes).lanes[0]
    artifact = ArtifactStore(settings.artifacts).verify(kernel.artifact)
    (symbol,), (whole,) = Library(artifact).signatures, Library(library).signatures
    contenders = [
        Contender(name=EACH, library=str(artifact), symbol=symbol),
        Contender(name=PORTFOLIO, library=str(library), symbol=whole),
    ]
    with RunnerProcess() as runner:
        runner.prepare(
            Assignment(workload=workload, lane=lane, threads=settings.threads, seed=extent)
        )
        result = race(contenders, runner, rounds=ROUNDS)
    if result.failed:
        raise SystemExit(f"M={extent}: {result.failed}")
    row = {
        "rows": extent,
        "portfolio_s": race_median_ci95(result.rounds[PORTFOLIO])[0],
        "each_s": race_median_ci95(result.rounds[EACH])[0],
        # Above 1 the portfolio is faster than the kernel tuned for just this number of rows.
        "ratio": 1.0 / ratio_of_medians(result.rounds[PORTFOLIO], result.rounds[EACH]).value,
        "default_s": kernel.default_median_s,
        "each_promoted_s": kernel.median_s,
    }
    with setup.log.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(f"M={extent}: {row['ratio']:.3f}", flush=True)


def _rows(setup: Setup) -> list[dict[str, float]]:
    return (
        [json.loads(line) for line in setup.log.read_text().splitlines()]
        if setup.log.exists()
        else []
    )


def report(setup: Setup) -> str:
    """The table of what was raced, as Markdown."""
    rows = sorted(_rows(setup), key=lambda row: row["rows"])
    if not rows:
        return "nothing was raced yet"
    lines = [
        "| rows | portfolio | tuned for it | speed of the portfolio | default / portfolio |",
        "|---:|---:|---:|---:|---:|",
    ]
    against = []
    for row in rows:
        # The default raced when the single kernel was promoted; the two races share that kernel.
        default = (
            row["default_s"] / row["each_promoted_s"] * row["ratio"]
            if row["default_s"]
            else float("nan")
        )
        against.append(default)
        times = f"{row['portfolio_s'] * 1e6:.0f} µs | {row['each_s'] * 1e6:.0f} µs"
        lines.append(f"| {row['rows']} | {times} | {row['ratio']:.3f} | {default:.1f} |")
    mean = exp(sum(log(row["ratio"]) for row in rows) / len(rows))
    worst, least = min(row["ratio"] for row in rows), min(against)
    lines += [
        "",
        f"{len(rows)} numbers: geometric mean {mean:.3f}, worst {worst:.3f}; default/portfolio "
        f"at least {least:.2f}.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
