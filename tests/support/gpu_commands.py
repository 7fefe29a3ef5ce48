"""Commands on a machine whose GPU is a double, and on the same machine without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 240


class Machine:
    """Commands on one data directory, with or without a GPU."""

    def __init__(self, folder: Path, doubles: Mapping[str, str]) -> None:
        self.folder, self._doubles = folder, doubles

    def start(self, *arguments: str, gpu: bool = True, **settings: str) -> subprocess.Popen[str]:
        plain = {name: value for name, value in os.environ.items() if not name.startswith("TUNER_")}
        places = {
            "XDG_DATA_HOME": str(self.folder / "data"),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
        }
        environment = (
            plain
            | places
            | {"PYTHONPATH": str(ROOT)}
            | (dict(self._doubles) if gpu else {})
            | settings
        )
        command = [sys.executable, "-P", "-m", "tuner", *arguments]
        errors = subprocess.STDOUT if arguments[0] == "serve" else subprocess.PIPE
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )

    def run(self, *arguments: str, gpu: bool = True, status: int = 0) -> Any:
        """The command's JSON document."""
        process = self.start("--json", *arguments, gpu=gpu)
        out, err = process.communicate(timeout=LIMIT_S)
        assert process.returncode == status, (
            f"{arguments}: {process.returncode}\n{out[-2000:]}\n{err[-3000:]}"
        )
        return json.loads(out) if out.strip() else None
