"""The service as a process of its own."""

from __future__ import annotations

import socket
import time

import httpx

BACK_WITHIN_S = 15.0  # the promise is 5 s on a machine of one's own


SERVE = """
import sys
from pathlib import Path
from api.options import ServiceOptions
from api.server import serve
serve(ServiceOptions(database_url=sys.argv[1], artifacts=Path(sys.argv[2]), port=int(sys.argv[3]), request_burst=10**6,
                     run_wait_s=1.0))
"""  # noqa: E501


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
