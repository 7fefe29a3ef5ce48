"""Measure the service under load: lookups, filtered lists of trials, event streams.

    # with a throwaway SQLite database
    python -m benchmarks.service_load
    # with a database that is filled once and kept
    python -m benchmarks.service_load --db postgresql://USER@HOST/NAME

Fills the database with 200,000 kernels and 1,000,000 trials unless told otherwise. Starts
the service as a process of its own and measures from this one. Lookups of known kernels
are sent at open-loop rates. The highest rate that is sustained is the last of rising ones
whose p99 is within the bound.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from benchmarks.service.fill import KNOWN, Filled, fill
from benchmarks.service.open_loop import Connections, Latencies, get, offer, post
from benchmarks.service.process import ServiceProcess, serving
from benchmarks.service.streams import measure, running_jobs
from tuner.db.engine import open_database

PARTS = ("lookups", "trials", "streams")
BOUND_MS = 15.0  # p99 of a lookup
STEP = 1.15  # between two rates, while the highest is looked for
WARM_S = 3.0
STREAM_JOBS = 20
# What people and the dashboard ask of a job's trials; values occur in the filled database.
FILTERS = {
    "all": "",
    "the fastest": "sort=median_s&outcome=ok",
    "failures": "outcome=failed",
    "one kind of failure": "outcome=run_timeout",
    "a rare kind of failure": "outcome=out_of_memory&sort=-number",
    "between two medians, fastest first": "min_median_s=0.0008&max_median_s=0.0009&sort=median_s",
    "one value of a knob": "knob=unroll%3D64",
    "two values of knobs, slowest first": "knob=unroll%3D64&knob=sketch%3Dtiles&outcome=ok&sort=-median_s",  # noqa: E501
    # one trial in 512
    "a rare pair of values, fastest first": "knob=unroll%3D64&knob=tile%3D%5B8,16%5D&sort=median_s",
}


def lookups(token: str) -> list[bytes]:
    bodies = (
        {"workload": {"op": "matmul", "params": {"M": 16 + m, "N": 64, "K": 64}}, "prepare": False}
        for m in range(KNOWN)
    )
    return [post("/v1/lookup", token, json.dumps(body).encode()) for body in bodies]


async def offer_lookups(
    service: ServiceProcess, filled: Filled, rates: Sequence[float], seconds: float
) -> list[Latencies]:
    """The given rates, then rising ones from the last until p99 passes the bound."""
    connections, requests, table = (
        Connections(service.host, service.port),
        lookups(filled.token),
        list[Latencies](),
    )
    try:
        await connections.open(16)
        await offer(service, connections, requests, rate=200, seconds=WARM_S)
        for rate in rates:
            table.append(await offer(service, connections, requests, rate=rate, seconds=seconds))
        while table[-1].p99_ms <= BOUND_MS and table[-1].failures == 0:
            table.append(
                await offer(
                    service,
                    connections,
                    requests,
                    rate=round(table[-1].offered_per_s * STEP),
                    seconds=seconds,
                )
            )
    finally:
        connections.close()
    return table


async def list_trials(
    service: ServiceProcess, filled: Filled, *, rate: float, seconds: float
) -> dict[str, Latencies]:
    """List trials by each filter on every job in turn, then by all of them mixed.

    Each answer is a first page of the default length.
    """
    connections, table = Connections(service.host, service.port), dict[str, Latencies]()
    by_filter = {
        name: [get(f"/v1/jobs/{quote(job)}/trials?{query}", filled.token) for job in filled.jobs]
        for name, query in FILTERS.items()
    }
    try:
        await connections.open(4)
        mixed = [
            request for several in zip(*by_filter.values(), strict=True) for request in several
        ]
        await offer(service, connections, mixed, rate=rate, seconds=len(mixed) / rate)
        for name, requests in by_filter.items():
            table[name] = await offer(service, connections, requests, rate=rate, seconds=seconds)
        table["mixed"] = await offer(service, connections, mixed, rate=rate, seconds=2 * seconds)
    finally:
        connections.close()
    return table


def run(database_url: str, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    database, started = open_database(database_url), time.monotonic()
    filled = fill(database, kernels=given.kernels, trials=given.trials)
    print(
        f"{filled.kernels} kernels, {filled.trials} trials, filled in "
        f"{time.monotonic() - started:.0f} s",
        file=sys.stderr,
    )
    result: dict[str, Any] = {
        "kernels": filled.kernels,
        "trials": filled.trials,
        "database": database.engine.dialect.name,
    }
    try:
        with serving(database_url, folder) as service:
            if "lookups" in given.only:
                rates = [float(rate) for rate in given.rates.split(",")]
                latencies = asyncio.run(offer_lookups(service, filled, rates, given.seconds))
                result["lookups"] = [asdict(row) for row in latencies]
            if "trials" in given.only:
                listed = asyncio.run(
                    list_trials(service, filled, rate=given.trial_rate, seconds=given.seconds)
                )
                result["lists"] = [{"filter": name} | asdict(row) for name, row in listed.items()]
            if "streams" in given.only:
                jobs = running_jobs(database, filled.jobs[0], STREAM_JOBS)
                options = {
                    "streams": given.streams,
                    "rate": given.event_rate,
                    "seconds": given.seconds,
                }
                result["streams"] = [
                    asdict(asyncio.run(measure(service, database, filled.token, jobs, **options)))
                ]
    finally:
        database.close()
    return result


def show(result: dict[str, Any]) -> None:
    for part in ("lookups", "lists", "streams"):
        rows = result.get(part, [])
        if rows:
            print(
                f"\n{result['database']}, {part}\n\n| "
                + " | ".join(rows[0])
                + " |\n|"
                + "---|" * len(rows[0])
            )
        for row in rows:
            print("| " + " | ".join(str(value) for value in row.values()) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--db",
        help="URL of an empty database, or of one filled before; left out, a throwaway SQLite file",
    )
    parser.add_argument("--kernels", type=int, default=200_000)
    parser.add_argument("--trials", type=int, default=1_000_000)
    parser.add_argument(
        "--only",
        type=lambda text: text.split(","),
        default=list(PARTS),
        help="of lookups,trials,streams",
    )
    parser.add_argument(
        "--rates",
        default="100,250,500",
        help="lookups a second; higher ones follow while p99 is within 15 ms",
    )
    parser.add_argument("--trial-rate", type=float, default=10.0, help="lists of trials a second")
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument(
        "--event-rate", type=float, default=40.0, help="events a second over all jobs"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="of each row")
    parser.add_argument("--json", action="store_true", help="one document instead of tables")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tuner-load-") as folder:
        result = run(given.db or f"sqlite:///{folder}/tuner.sqlite", Path(folder), given)
    if given.json:
        print(json.dumps(result))
    else:
        show(result)


if __name__ == "__main__":
    main()
