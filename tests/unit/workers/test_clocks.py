"""A clock that is set while candidates are built and measured changes no duration."""

from __future__ import annotations

from pathlib import Path

import pytest

import tuner
from tuner.measure.outcome import Failed, FailureKind
from tuner.workers.fleet.calls import on_this_clock
from tuner.workers.fleet.messages import Measured

# Files that ask the clock which can be set: to date a moment, or to compare with a file's time.
DATING = {"jobs/timeline.py", "scratch.py", "export/artifacts.py"}


@pytest.mark.parametrize("folder", ["", "workers", "api", "db"])
def test_durations_are_of_a_clock_that_is_never_set(folder: str) -> None:
    root = Path(tuner.__file__).parent / folder
    asking = {
        str(file.relative_to(root))
        for file in root.rglob("*.py")
        if "time.time(" in (text := file.read_text()) or "time.time," in text
    }
    assert asking == {name for name in DATING if (root / name).exists()}


@pytest.mark.parametrize("booted_s", [-5e6, 0.0, 5e6])
def test_results_of_another_machine_keep_their_durations(booted_s: float) -> None:
    failed = Failed(kind=FailureKind.RUN_CRASH, message="")
    there = [
        Measured(number=0, outcome=failed, started_s=booted_s + 1.0, ended_s=booted_s + 1.5),
        Measured(number=1, outcome=failed, started_s=booted_s + 1.75, ended_s=booted_s + 2.0),
    ]
    here = on_this_clock(there, 100.0)
    assert [(each.number, each.started_s, each.ended_s) for each in here] == [
        (0, 99.0, 99.5),
        (1, 99.75, 100.0),
    ]
