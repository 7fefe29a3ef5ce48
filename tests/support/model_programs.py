"""Python programs that call compiled models, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tuner

ROOT = Path(tuner.__file__).parents[1]


def run_program(
    program: str, *arguments: str, home: Path, timeout_s: float, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The ended process of a program that has its home and all data of the tuner's in a folder."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        env={
            "PYTHONPATH": str(ROOT),
            "PATH": "/usr/bin:/bin:/usr/local/bin",
            "HOME": str(home),
            "TUNER_DATA_DIR": str(home),
            **environment,
        },
    )
