"""`tuner run` on the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.traced_calls import call, trace_of
from tuner.trace.record import encoded

PROGRAM = "import numpy as np; np.exp(np.ones((8, 9), 'float32')); raise SystemExit(4)"


@pytest.fixture
def record(tmp_path: Path) -> Path:
    path = tmp_path / "record.json"
    x = np.ones((8, 9), "float32")
    path.write_bytes(encoded(trace_of(call("numpy.exp", x, count=1000, total_s=1.5))))
    return path


def test_without_kernels_the_program_runs_as_it_is(
    tuner: Callable[..., Any], home: Path, record: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    command = ("run", "--trace", str(record), "--report", str(report), "--", sys.executable, "-c")
    called = tuner(*command, PROGRAM)
    assert (called.code, called.out) == (4, "") and "no call of" in called.err
    document = json.loads(report.read_text())
    assert document == {"exit_code": 4, "processes": 1, "notes": [], "calls": []}


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--trace", "nothing.json"), "cannot be read"),
        (("--report", "no/where.json"), "no is no folder"),
        (("--target", "cuda:sm_90"), "no such GPU"),
        (("--server", "http://127.0.0.1:9"), "cannot be sent to"),
    ],
)
def test_what_cannot_be_run_is_refused_before_the_program(
    tuner: Callable[..., Any],
    home: Path,
    record: Path,
    tmp_path: Path,
    flags: tuple[str, str],
    says: str,
) -> None:
    given = {"--trace": str(record)} | dict([flags])
    listed = [word for flag in given.items() for word in flag]
    called = tuner("run", *listed, "--", "touch", str(tmp_path / "ran"))
    assert called.code == 2 and says in called.err
    assert not (tmp_path / "ran").exists()
