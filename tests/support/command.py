"""The command as a user calls it, as a pytest plugin: arguments in; exit code, standard
output and standard error back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tuner.cli import main
from tuner.settings import Settings

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Called:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Tuner = Callable[..., Called]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without settings whose data lies below `tmp_path`, in an empty folder."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"TUNER_{name.upper()}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("NO_COLOR", "1")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return tmp_path


@pytest.fixture
def tuner(home: Path, capfd: pytest.CaptureFixture[str]) -> Tuner:
    def call(*arguments: str) -> Called:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        captured = capfd.readouterr()
        return Called(code=int(ended.value.code or 0), out=captured.out, err=captured.err)

    return call


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """A command on the folder's database, in a process of its own."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TUNER_DATA_DIR": str(folder),
        "TUNER_DB": f"sqlite:///{folder}/tuner.db",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "tuner", *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
