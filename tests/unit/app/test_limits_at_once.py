"""Commands that begin at once on a new database measure the machine's limits once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
COMMAND = """
import sys
from tuner.app.machine import with_limits
from tuner.db.engine import open_database
from tuner.target.detect import detect_cpu
database = open_database(sys.argv[1])
print(with_limits(database, detect_cpu()).limits)
database.close()
"""


def test_the_second_command_takes_the_limits_of_the_first(tmp_path: Path) -> None:
    """No two measurements of seconds give the same figures."""
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    arguments = [sys.executable, "-c", COMMAND, f"sqlite:///{tmp_path}/tuner.db"]
    commands = [
        subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    first, second = (command.communicate(timeout=120)[0] for command in commands)
    assert first == second and first.startswith("Limits(")
