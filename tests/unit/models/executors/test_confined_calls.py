"""What is timed of a model has its cores alone, as what is timed of a kernel has."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from tuner.measure.core_turns import CORES
from tuner.models.executors import confined_calls
from tuner.models.executors.confined_calls import ConfinedCalls

CORE = min(os.sched_getaffinity(0))
FOLDER = CORES / f"cpu{CORE}"


@pytest.mark.skipif(not FOLDER.is_dir(), reason="a sandbox that shows no cores has no turns")
@pytest.mark.parametrize("timed", ["run", "spent"])
def test_no_other_run_has_the_cores_meanwhile(timed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    free: list[bool] = []

    def note_turn(*given: object) -> None:
        descriptor = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            free.append(True)
        except BlockingIOError:
            free.append(False)
        finally:
            os.close(descriptor)

    for name in ("run_library", "spent_seconds"):
        monkeypatch.setattr(confined_calls, name, note_turn)
    getattr(ConfinedCalls((CORE,)), timed)(Path("model.so"), "run", [])
    assert free == [False]
