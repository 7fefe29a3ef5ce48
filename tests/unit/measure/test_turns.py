"""Turns on what has a name, between processes."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tuner.measure.turns import turn

ROOT = Path(__file__).resolve().parents[3]
HOLD = """
import signal
from tuner.measure.turns import turn
with turn("limits-a/b:c"):
    print("held", flush=True)
    signal.pause()
"""


def take(name: str) -> None:
    with turn(name):
        pass


def test_a_turn_ends_with_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    with (
        ThreadPoolExecutor(1) as beside,
        subprocess.Popen(
            [sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True, env=environment
        ) as holder,
    ):
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        take("limits-another")
        waiting = beside.submit(take, "limits-a/b:c")
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.3)
        holder.kill()
        waiting.result(timeout=30)
