"""Where a started service listens, by its log."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

LIMIT_S = 150


def listening(log: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        lines = [
            line for line in log.read_text().splitlines() if line.startswith("listening on http")
        ]
        if lines:
            return lines[0].split()[-1]
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(log.read_text())
