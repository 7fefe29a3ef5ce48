"""Kernels of eight operators for judging estimates: searched, then raced on a quiet machine.

    python -m benchmarks.oracle search -o FOLDER [--each 26] [--trials 12] [--seconds 200]
    python -m benchmarks.oracle race -o FOLDER [--seconds 550]
    python -m benchmarks.oracle report -o FOLDER
    python -m benchmarks.oracle networks -o FOLDER --seconds 20
    python -m benchmarks.oracle sums -o FOLDER
    python -m benchmarks.oracle throughput -o FOLDER

`search` may run beside other work, in parts: its log says what is left. `race` wants the
machine to itself. It times the first candidate and the two best of each search in turn, in
fresh processes, and promotes the fastest into FOLDER/tuner.db; run again, it adds rounds.

`report` leaves each kernel out of what the predictor learns, and says what the estimate's
first choice loses to the best known, beside the bound that was stated. `networks` tunes ten
networks, `sums` compares each with the sum of its kernels; `throughput` compares the choice
of instances × threads with all of them by hand. The last two want the machine to themselves.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.oracle import log
from benchmarks.oracle.instances import instances
from benchmarks.oracle.networks import sums, tune
from benchmarks.oracle.race import promote, raced
from benchmarks.oracle.report import report
from benchmarks.oracle.search import searched
from benchmarks.oracle.workloads import OPERATORS, drawn
from tuner.app.machine import with_limits
from tuner.db.engine import open_database
from tuner.target.detect import detect_cpu
from tuner.workers.fleet.machine import usable_nodes

SEED = 46


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "step", choices=("search", "race", "report", "networks", "sums", "throughput")
    )
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--each", type=int, default=26, help="workloads of each operator")
    parser.add_argument("--trials", type=int, default=12, help="candidates of each search")
    parser.add_argument("--part", default="0/1", help="of a search: 0/2 and 1/2 run side by side")
    parser.add_argument("--seconds", type=float, default=550.0, help="after which it stops")
    given = parser.parse_args()
    folder: Path = given.output.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    until_s = time.monotonic() + given.seconds
    match given.step:
        case "search":
            search(folder, given, until_s)
        case "race":
            races(folder, until_s)
        case "report":
            report(folder)
        case "networks":
            tune(folder, given.seconds)
        case "sums":
            sums(folder)
        case "throughput":
            instances(f"sqlite:///{folder / 'throughput.db'}", given.trials)


def search(folder: Path, given: argparse.Namespace, until_s: float) -> None:
    done = log.searches(folder / "searches.jsonl")
    cores = [core for node in usable_nodes() for core in node]
    storage = folder / "libraries"
    storage.mkdir(exist_ok=True)
    part, parts = map(int, given.part.split("/"))
    # A part has rows of all operators.
    asked = [
        each
        for place, each in enumerate(drawn(given.each, SEED))
        if place // len(OPERATORS) % parts == part and each.spec not in done
    ]
    for entry in searched(
        asked, detect_cpu(), storage, trials=given.trials, cores=cores, until_s=until_s
    ):
        log.append(folder / "searches.jsonl", entry)
        best = min((s for s in entry.seconds if s is not None), default=0.0)
        print(f"{entry.spec}: {len(entry.seconds)} candidates, {1e6 * best:.1f} µs", flush=True)


def races(folder: Path, until_s: float) -> None:
    done = log.races(folder / "races.jsonl")
    entries = log.searches(folder / "searches.jsonl")
    database = open_database(f"sqlite:///{folder / 'tuner.db'}")
    target = with_limits(database, detect_cpu())
    # The least raced first: what slows a machine for a while then falls on some rounds alone.
    order = sorted(
        entries.values(), key=lambda each: done[each.spec].count if each.spec in done else 0
    )
    left = [each for each in order if each.finalists]
    core = [core for node in usable_nodes() for core in node][-1]
    for result in raced(left, core, until_s):
        log.append(folder / "races.jsonl", result)
    for result in log.races(folder / "races.jsonl").values():
        if result.rounds_s:
            promote(database, entries[result.spec], result, target)
    print(f"{len(log.races(folder / 'races.jsonl'))} of {len(entries)} raced")


if __name__ == "__main__":
    main()
