"""Kill the whole service at random moments while clients submit and workers measure.

    # with a throwaway SQLite database
    python -m benchmarks.service_kills --cycles 200
    # with a database that is used for this alone
    python -m benchmarks.service_kills --cycles 200 --db postgresql://USER@HOST/NAME
    # in pieces: run it again until it is done
    python -m benchmarks.service_kills --cycles 200 --folder kills --seconds 150

Each cycle starts `tuner serve` and waits until it answers. In one of `--measure-every`
cycles it also waits until a worker has measured something. It lets the service work for
a random while and kills it: by turns the server alone, or with its orchestrator and all
workers.

Clients keep a log of what was acknowledged. After each piece the database is compared
with all of it. The exit status is 1 where something was lost.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.service.acknowledged import Client, Record, faults, prepared
from benchmarks.service.whole import WholeService
from tuner.db.engine import Database, open_database

LONGEST_S = 3.0  # of a random while
PATIENCE_S = 90.0  # for something that should take seconds; then the cycle counts as failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    number: int
    everything: bool  # orchestrator and workers were killed too
    answering_s: float  # from its start until the service was ready
    waited: bool  # until a trial was recorded
    # How long from the start; None where it was not waited for, or in vain.
    measuring_s: float | None


def run(
    database: Database,
    folder: Path,
    token: str,
    done: Sequence[Cycle],
    *,
    cycles: int,
    seconds: float,
    every: int,
    seed: int,
) -> list[Cycle]:
    """More cycles, until there are `cycles` or `seconds` are over."""
    record, service = Record(folder / "acknowledged.jsonl"), WholeService(database, folder)
    clients = [
        Client(service.url, token, record, name=f"{len(done)}-{number}") for number in range(2)
    ]
    cycles_done, started = list(done), time.monotonic()
    for client in clients:
        client.start()
    try:
        for number in range(len(done), cycles):
            if time.monotonic() - started > seconds:
                break
            chance = random.Random(f"{seed}:{number}")
            with service.running() as live:
                answering_s = live.wait_until_ready(PATIENCE_S)
                waited = number % every == every - 1
                measuring_s = live.wait_until_measuring(PATIENCE_S) if waited else None
                time.sleep(chance.uniform(0.0, LONGEST_S))
                everything = chance.random() < 0.5
                live.kill(everything=everything)
            cycles_done.append(
                Cycle(
                    number=number,
                    everything=everything,
                    answering_s=answering_s,
                    waited=waited,
                    measuring_s=measuring_s,
                )
            )
            with (folder / "cycles.jsonl").open("a") as log:
                log.write(json.dumps(asdict(cycles_done[-1])) + "\n")
    finally:
        for client in clients:
            client.stop.set()
        for client in clients:
            client.join(timeout=30)
        service.end()
    return cycles_done


def summary(
    cycles: Sequence[Cycle], folder: Path, problems: Sequence[str], database: Database
) -> dict[str, object]:
    answering = sorted(cycle.answering_s for cycle in cycles)
    measuring = sorted(cycle.measuring_s for cycle in cycles if cycle.measuring_s is not None)
    counts = Record(folder / "acknowledged.jsonl").counts()
    return {
        "database": database.engine.dialect.name,
        "cycles": len(cycles),
        "with_workers_killed": sum(cycle.everything for cycle in cycles),
        **{f"acknowledged_{name}": count for name, count in counts.items()},
        "answering_median_s": round(answering[len(answering) // 2], 2),
        "answering_max_s": round(answering[-1], 2),
        "measuring_cycles": len(measuring),
        "measuring_in_vain": sum(cycle.waited for cycle in cycles) - len(measuring),
        "measuring_median_s": round(measuring[len(measuring) // 2], 2) if measuring else None,
        "measuring_max_s": round(measuring[-1], 2) if measuring else None,
        "faults": list(problems),
    }


def work(
    url: str, folder: Path, *, cycles: int, seconds: float, every: int, seed: int
) -> dict[str, object]:
    """Go on in `folder` until there were `cycles` in all, or for `seconds`.

    Gives the summary with the faults.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "cycles.jsonl"
    done = (
        [Cycle(**json.loads(line)) for line in log.read_text().splitlines()] if log.exists() else []
    )
    database = open_database(url)
    try:
        token = prepared(database, folder)
        cycles_done = run(
            database, folder, token, done, cycles=cycles, seconds=seconds, every=every, seed=seed
        )
        return summary(
            cycles_done, folder, faults(database, Record(folder / "acknowledged.jsonl")), database
        )
    finally:
        database.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cycles", type=int, default=20)
    parser.add_argument(
        "--db", help="URL of a database used for this alone; left out, an SQLite file in the folder"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="keeps logs and state, so that it can go on; left out, a throwaway one",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=float("inf"),
        help="stop after this long; run again to go on",
    )
    parser.add_argument(
        "--measure-every",
        type=int,
        default=4,
        help="in one cycle of so many a measurement is waited for",
    )
    parser.add_argument("--seed", type=int, default=20261120)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tuner-kills-") as throwaway:
        folder = (given.folder or Path(throwaway)).absolute()
        result = work(
            given.db or f"sqlite:///{folder}/tuner.sqlite",
            folder,
            cycles=given.cycles,
            seconds=given.seconds,
            every=given.measure_every,
            seed=given.seed,
        )
    print(json.dumps(result, indent=1))
    sys.exit(1 if result["faults"] else 0)


if __name__ == "__main__":
    main()
