"""Send requests at an open-loop rate: each when it is due, whatever came of earlier ones.

Latency counts from when a request was due, so a service that falls behind shows it. A
closed loop would wait and hide it.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.service.process import ServiceProcess

LONGEST_S = 60.0  # after the last request was due


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    offered_per_s: float
    answered_per_s: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float
    failures: int  # answers other than 200, connections lost
    server_cpu_ms: float  # processor time of the service for one request


class Connections:
    """Keep-alive connections to the service, as many as are needed at once."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def send(self, request: bytes) -> int:
        """The status of the answer, once all of it has arrived."""
        reader, writer = self._open() or await asyncio.open_connection(
            self.host, self.port, limit=1 << 22
        )
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        start = head.index(b"content-length:") + 15
        await reader.readexactly(int(head[start : head.index(b"\r", start)]))
        self._idle.append((reader, writer))
        return int(head[9:12])

    def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """An idle connection that the service has not closed meanwhile."""
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof():
                return reader, writer
            writer.close()
        return None

    async def open(self, count: int) -> None:
        for reader, writer in [
            await asyncio.open_connection(self.host, self.port, limit=1 << 22) for _ in range(count)
        ]:
            self._idle.append((reader, writer))

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()


def get(path: str, token: str) -> bytes:
    return (
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    )


def post(path: str, token: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
        f"{token}\r\nContent-Type: application/json\r\n"
    )
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body


async def offer(
    service: ServiceProcess,
    connections: Connections,
    requests: Sequence[bytes],
    *,
    rate: float,
    seconds: float,
) -> Latencies:
    """Sends `requests` in turn, `rate` a second for `seconds`."""
    loop = asyncio.get_running_loop()
    latencies_s: list[float] = []
    failures = 0

    async def answer(number: int, due: float) -> None:
        nonlocal failures
        try:
            status = await connections.send(requests[number % len(requests)])
        except (OSError, asyncio.IncompleteReadError):
            status = 0
        failures += status != 200
        latencies_s.append(loop.time() - due)

    gc.collect()
    gc.disable()  # the client's own pauses are not the service's
    try:
        cpu_s, start, tasks = service.cpu_s(), loop.time() + 0.05, list[asyncio.Task[None]]()
        for number in range(int(rate * seconds)):
            due = start + number / rate
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            tasks.append(asyncio.create_task(answer(number, due)))
        await asyncio.wait_for(asyncio.gather(*tasks), timeout=LONGEST_S)
    finally:
        gc.enable()
    took_s, count = loop.time() - start, len(latencies_s)
    latencies_s.sort()
    percentiles_ms = [
        round(latencies_s[min(count - 1, int(count * share))] * 1e3, 2)
        for share in (0.5, 0.9, 0.99, 1.0)
    ]
    return Latencies(
        offered_per_s=rate,
        answered_per_s=round(count / took_s, 1),
        p50_ms=percentiles_ms[0],
        p90_ms=percentiles_ms[1],
        p99_ms=percentiles_ms[2],
        max_ms=percentiles_ms[3],
        failures=failures,
        server_cpu_ms=round((service.cpu_s() - cpu_s) / count * 1e3, 3),
    )
