"""A board that dials out, by the commands of docs/how-to/devices.md, from its key to a kernel."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.agents import native_agent, native_target
from tests.support.command import start
from tests.support.dialling_boards import board, certificate

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(400)]


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """`tuner agent relay` on a free port."""
    cert, key = certificate(tmp_path)
    words = ("--host", "127.0.0.1", "--port", "0", "--socket", str(tmp_path / "s"))
    running = start(tmp_path, "agent", "relay", "--cert", str(cert), "--cert-key", str(key), *words)
    yield running
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=20)


def said(running: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """The first of the relay's next lines that has the pattern."""
    assert running.stderr is not None
    for line in running.stderr:
        match = re.search(pattern, line)
        if match:
            return match
    raise AssertionError(f"the relay ended without {pattern}")


def ended(folder: Path, *words: str) -> tuple[int, str, str]:
    process = start(folder, *words)
    output, errors = process.communicate(timeout=200)
    return process.returncode, output, errors


@pytest.mark.long
def test_a_board_behind_a_router_is_a_device_until_its_key_is_revoked(
    tmp_path: Path, relay: subprocess.Popen[str]
) -> None:
    port = int(said(relay, r"devices dial port (\d+)")[1])
    code, output, errors = ended(tmp_path, "keys", "create", "pi", "--scope", "worker", "--json")
    assert code == 0, errors
    key = json.loads(output)
    dialling = board(
        tmp_path / "board",
        name="pi",
        token=key["token"],
        agent=native_agent().text,
        ca=tmp_path / "cert.pem",
        port=port,
        again=True,
    )
    reach = (sys.executable, "-m", "tuner", "agent", "reach", "pi", "--socket", str(tmp_path / "s"))
    there = ("--target", native_target().name, "--device", shlex.join(reach))
    try:
        said(relay, "pi is there")
        code, output, errors = ended(
            tmp_path, "tune", "matmul:M=16,N=16,K=16", *there, "--trials", "2", "--json"
        )
        assert code == 0, errors
        (result,) = json.loads(output)["results"]
        assert result["trials"]["total"] == 2 and result["kernel"]["verified"]
        assert ended(tmp_path, "keys", "revoke", key["id"])[0] == 0
        code, _, errors = ended(tmp_path, "agent", "check", *there)
        assert code == 1 and "no device called 'pi'" in errors
    finally:
        with suppress(ProcessLookupError):
            os.killpg(dialling.pid, signal.SIGTERM)
        dialling.wait(20)
