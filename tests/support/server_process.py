"""The service as a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

BACK_WITHIN_S = 15.0  # the promise is 5 s on a machine of one's own


SERVE = """
import sys
from pathlib import Path
from api.options import ServiceOptions
from api.server import serve
serve(ServiceOptions(database_url=sys.argv[1], artifacts=Path(sys.argv[2]), port=int(sys.argv[3]), request_burst=10**6,
                     run_wait_s=1.0, models=True))
"""  # noqa: E501


@contextmanager
def served(url: str, folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """The service on this port, killed after the block; its artifacts lie in the folder."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    command = [sys.executable, "-c", SERVE, url, str(folder / "artifacts"), str(port)]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_ready(http: httpx.Client, within_s: float = BACK_WITHIN_S) -> float:
    started = time.monotonic()
    while True:
        try:
            if http.get("/v1/health/ready").status_code == 200:
                return time.monotonic() - started
        except httpx.TransportError:
            time.sleep(0.02)
        assert time.monotonic() - started < within_s, "the service did not come back"
