"""The command as a user calls it, as a pytest plugin: arguments in; exit code, standard
output and standard error back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tuner.cli import main
from tuner.settings import Settings


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
