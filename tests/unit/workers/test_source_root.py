"""Children import the package that their parent runs."""

from __future__ import annotations

import os
import subprocess
import sys

import tuner
from tuner.workers.fleet.channel import source_root


def test_a_child_imports_the_parents_package() -> None:
    program = "import tuner; print(tuner.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(source_root())}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        cwd="/",
    )
    assert done.stdout.strip() == tuner.__file__
