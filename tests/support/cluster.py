"""Ray's head and workers as processes of their own."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.support.server_process import free_port

ROOT = Path(__file__).resolve().parents[2]


class Head:
    """Of a cluster, with a token of its own; may be killed and started again at the
    same address."""

    def __init__(self, folder: Path, ip: str = "127.0.0.1") -> None:
        self._folder, self._ip, self._port = folder, ip, free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    @property
    def address(self) -> str:
        return f"{self._ip}:{self._port}"

    def start(self) -> None:
        self._starts += 1
        command = [
            sys.executable,
            "-m",
            "ray.scripts.scripts",
            "start",
            "--head",
            "--block",
            f"--node-ip-address={self._ip}",
        ]
        command += [
            f"--port={self._port}",
            "--num-cpus=0",
            "--include-dashboard=false",
            "--disable-usage-stats",
        ]
        command += [
            f"--temp-dir={self._folder}/ray{self._starts}",
            "--object-store-memory=80000000",
        ]
        command += ["--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"]
        # A node that does not answer is declared dead in some ten seconds instead of half a minute.
        soon = {
            "initial_delay_ms": "1000",
            "period_ms": "1000",
            "timeout_ms": "2000",
            "failure_threshold": "3",
        }
        environment = {
            **os.environ,
            **{f"RAY_health_check_{name}": value for name, value in soon.items()},
        }
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, env=environment, stdin=quiet, stdout=quiet, stderr=quiet
        )

    def kill(self, number: int = signal.SIGKILL) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        everything = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        if number == signal.SIGKILL:
            for child in everything:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        process.wait(timeout=30)
        _, alive = psutil.wait_procs(everything, timeout=10)
        for child in alive:
            child.kill()


@contextmanager
def running_head(monkeypatch: pytest.MonkeyPatch, ip: str = "127.0.0.1") -> Iterator[Head]:
    folder = Path(tempfile.mkdtemp(prefix="tc-", dir="/tmp"))
    token = folder / "token"
    token.write_text(secrets.token_hex(32), encoding="ascii")
    token.chmod(0o600)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    head = Head(folder, ip)
    head.start()
    try:
        yield head
    finally:
        head.kill(signal.SIGTERM)
        shutil.rmtree(folder, ignore_errors=True)


def worker(
    address: str,
    name: str,
    log: Path,
    *,
    token: str | None = None,
    prefix: Sequence[str] = (),
    node_ip: str = "",
) -> subprocess.Popen[bytes]:
    command = [
        *prefix,
        sys.executable,
        "-P",
        "-m",
        "tuner",
        "worker",
        "--address",
        address,
        "--name",
        name,
    ]
    command += ["--node-ip", node_ip] if node_ip else []
    environment = {**os.environ, "PYTHONPATH": str(ROOT)} | (
        {} if token is None else {"RAY_AUTH_TOKEN_PATH": token}
    )
    with log.open("wb") as output:
        return subprocess.Popen(
            command, cwd=log.parent, env=environment, stdout=output, stderr=output
        )


def wait_until_joined(log: Path, process: subprocess.Popen[bytes], *, times: int = 1) -> None:
    """Until the worker has joined; one that lost its node joins again."""
    deadline = time.monotonic() + 200
    while log.read_text().count(" joined ") < times:
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
