"""The API of the service as a process of its own, on a free or a given port."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
from pathlib import Path
from api.options import ServiceOptions
from api.server import serve
from tuner.target.detect import detect_cpu
options = ServiceOptions(
    database_url=sys.argv[1], artifacts=Path(sys.argv[2]), port=int(sys.argv[3]), requests_per_s=1e9, request_burst=10**9,
    target=detect_cpu(),
)
serve(options, started=lambda url: print(url, flush=True))
"""  # noqa: E501


@dataclass(frozen=True, kw_only=True)
class ServiceProcess:
    url: str
    process: subprocess.Popen[str]

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://").partition(":")[0]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def cpu_s(self) -> float:
        """Processor time the service has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(database: str, folder: Path, *, port: int = 0) -> Iterator[ServiceProcess]:
    """Serves for the block, which may kill the process. It answers once the block begins."""
    command = [sys.executable, "-c", PROGRAM, database, str(folder / "artifacts"), str(port)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            service = ServiceProcess(url=process.stdout.readline().strip(), process=process)
            wait_until_ready(service.url)
            yield service
        finally:
            process.terminate()


def wait_until_ready(url: str, *, within_s: float = 60.0) -> float:
    """The seconds until the service says it is ready. Raises TimeoutError."""
    started = time.monotonic()
    while time.monotonic() - started < within_s:
        try:
            # Loading the certificates of a TLS that is not used would take longer than the answer.
            if httpx.get(url + "/v1/health/ready", timeout=5, verify=False).status_code == 200:
                return time.monotonic() - started
        except httpx.TransportError:
            time.sleep(0.02)
    raise TimeoutError(f"{url} was not ready within {within_s:g} s")
