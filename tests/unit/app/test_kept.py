"""A kept process: started again when it is killed, ended with its block, and no longer
than its keeper lives."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tuner.app.service import kept as module
from tuner.app.service.kept import kept

PROGRAM = "import os, sys; open(sys.argv[1], 'a').write(f'{os.getpid()}\\n'); sys.stdin.read()"


def started(file: Path, times: int) -> list[int]:
    """The numbers of the processes, once there were so many."""
    deadline = time.monotonic() + 30
    while True:
        started = [int(line) for line in file.read_text().splitlines()] if file.exists() else []
        if len(started) >= times:
            return started
        assert time.monotonic() < deadline, f"{len(started)} of {times} were started"
        time.sleep(0.02)


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_killed_process_is_started_again_and_ends_with_the_block(tmp_path: Path) -> None:
    log, said = tmp_path / "started", list[str]()
    with kept(
        [sys.executable, "-c", PROGRAM, str(log)],
        environment=os.environ,
        name="helper",
        note=said.append,
    ):
        (first,) = started(log, 1)
        os.kill(first, signal.SIGKILL)
        second = started(log, 2)[1]
        assert alive(second) and said == [
            "the helper ended with status -9; it is started again in 1 s"
        ]
    assert not alive(second) and len(started(log, 2)) == 2


@pytest.mark.slow
def test_pauses_grow_until_it_has_lived_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0.1)
    monkeypatch.setattr(module, "STEADY_S", 1.5)
    log, said = tmp_path / "started", list[str]()
    command = [sys.executable, "-c", PROGRAM, str(log)]
    with kept(command, environment=os.environ, name="helper", note=said.append):
        for number, lives_s in enumerate((0.0, 0.0, 2.0), start=1):
            process = started(log, number)[-1]
            time.sleep(lives_s)
            os.kill(process, signal.SIGKILL)
        started(log, 4)
    assert [text.rpartition(" in ")[2] for text in said] == ["0.1 s", "0.2 s", "0.1 s"]


def test_a_program_that_cannot_be_started_is_an_error_at_once() -> None:
    with pytest.raises(OSError), kept(["/nowhere/to/be/found"], environment={}, name="helper"):
        pass
