"""Load on the service: lookups of a known kernel at an open-loop rate, over a database of many kernels, with their latencies.

    python benchmarks/service_load.py --kernels 200000 --rates 100,250,500,750 --seconds 10

Starts the service as a process of its own on a throwaway SQLite database (or --db URL), the client runs here. Open loop: a
request is sent when its time has come, whether or not earlier ones were answered, and its latency counts from that time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from db import artifacts, keys, targets, workloads
from db.engine import Database, open_database
from db.models import KernelRow, WorkloadRow
from tuner.target.detect import detect_cpu
from tuner.workload.spec import to_document, workload_from_params

SERVE = """
import sys
from pathlib import Path
from api.options import ServiceOptions
from api.server import serve
options = ServiceOptions(database_url=sys.argv[1], artifacts=Path(sys.argv[2]), port=0, requests_per_s=1e9, request_burst=10**9)
serve(options, started=lambda url: print(url, flush=True))
"""
KNOWN = 64  # kernels that are asked for, in turn
BATCH = 5000


def fill(database: Database, count: int) -> str:
    """Adds `count` promoted kernels of as many workloads; a key's token."""
    target = detect_cpu()
    known = [workload_from_params("matmul", {"M": 16 + number, "N": 64, "K": 64}) for number in range(KNOWN)]
    with database.write() as session:
        targets.remember(session, target)
        artifacts.remember(session, sha256="0" * 64, size_bytes=1, kind="library")
        for workload in known:
            workloads.remember(session, workload, to_document(workload))
        token = keys.create(session, name="load", scopes=["read"])[1]
    for start in range(0, count, BATCH):
        with database.write() as session:
            now = session.now()
            own = [workload.key for workload in known] if start == 0 else []
            filler = [f"{number:064x}" for number in range(start, min(start + BATCH, count) - len(own))]
            same = {"op": "matmul", "name": "matmul", "spec": "matmul", "numerics": "strict", "document": {}, "created_at": now}
            session.execute(insert(WorkloadRow), [same | {"key": key} for key in filler])
            numbers = {"threads": 1, "median_s": 1e-3, "ci95_low_s": 9e-4, "ci95_high_s": 1.1e-3, "gflops": 1.0}
            row = numbers | {"state": "promoted", "target_key": target.key, "artifact": "0" * 64, "max_rel_error": 0.0}
            row |= {"verified": True, "validated_at": now, "created_at": now, "op": "matmul"}
            row |= {"config": {}, "versions": {}, "race": {}, "schedule": {}}
            session.execute(insert(KernelRow), [row | {"id": f"k_{key[-24:]}", "workload_key": key} for key in own + filler])
    return token


class Connections:
    """Keep-alive connections to the service, as many as are needed at once."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def send(self, request: bytes) -> int:
        """The status of the answer, once all of it has arrived."""
        reader, writer = self.idle.pop() if self.idle else await asyncio.open_connection(self.host, self.port)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(length)
        self.idle.append((reader, writer))
        return int(head[9:12])

    def close(self) -> None:
        for _, writer in self.idle:
            writer.close()


def requests(token: str, host: str) -> list[bytes]:
    made = []
    for number in range(KNOWN):
        workload = {"op": "matmul", "params": {"M": 16 + number, "N": 64, "K": 64}}
        body = json.dumps({"workload": workload, "prepare": False}).encode()
        head = f"POST /v1/lookup HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        made.append(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    return made


async def offer(connections: Connections, made: Sequence[bytes], rate: float, seconds: float) -> dict[str, Any]:
    """Latencies at an open-loop rate."""
    loop = asyncio.get_running_loop()
    latencies: list[float] = []
    failures = 0

    async def one(number: int, due: float) -> None:
        nonlocal failures
        try:
            status = await connections.send(made[number % len(made)])
        except (OSError, asyncio.IncompleteReadError):
            status = 0
        failures += status != 200
        latencies.append(loop.time() - due)

    start, tasks = loop.time() + 0.1, []
    for number in range(int(rate * seconds)):
        due = start + number / rate
        if due > loop.time():
            await asyncio.sleep(due - loop.time())
        tasks.append(asyncio.create_task(one(number, due)))
    await asyncio.wait_for(asyncio.gather(*tasks), timeout=60)
    latencies.sort()
    took_s = loop.time() - start
    at = {f"p{share}_ms": round(latencies[int(len(latencies) * share / 100)] * 1e3, 2) for share in (50, 90, 99)}
    return {"offered_per_s": rate, "answered_per_s": round(len(latencies) / took_s, 1), **at, "failures": failures}


async def run(url: str, token: str, rates: Sequence[float], seconds: float) -> list[dict[str, Any]]:
    host = url.removeprefix("http://")
    connections = Connections(host.partition(":")[0], int(host.partition(":")[2]))
    made = requests(token, host)
    try:
        await offer(connections, made, 50, 2)  # warm: imports, connections, statement cache
        return [await offer(connections, made, rate, seconds) for rate in rates]
    finally:
        connections.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=200_000)
    parser.add_argument("--rates", default="100,250,500,750", help="requests a second, one run each")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run")
    parser.add_argument("--db", help="URL of an empty database; left out, a throwaway SQLite file")
    parser.add_argument("--json", action="store_true", help="one document instead of a table")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tuner-load-") as folder:
        address = given.db or f"sqlite:///{folder}/tuner.sqlite"
        database = open_database(address)
        token = fill(database, given.kernels)
        database.close()
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
        command = [sys.executable, "-c", SERVE, address, str(Path(folder) / "artifacts")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment) as service:
            assert service.stdout is not None
            url = service.stdout.readline().strip()
            try:
                wait_until_open(url)
                table = asyncio.run(run(url, token, [float(rate) for rate in given.rates.split(",")], given.seconds))
            finally:
                service.terminate()
    if given.json:
        print(json.dumps({"kernels": given.kernels, "runs": table}))
        return
    print("  ".join(f"{name:>14}" for name in table[0]))
    for row in table:
        print("  ".join(f"{value:>14}" for value in row.values()))


def wait_until_open(url: str) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    deadline = time.monotonic() + 20

    async def open_once() -> None:
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()

    while time.monotonic() < deadline:
        with suppress(OSError):
            asyncio.run(open_once())
            return
        time.sleep(0.05)


if __name__ == "__main__":
    main()
