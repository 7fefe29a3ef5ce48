"""`tuner trace`, `tuner coverage` and `tuner tune --trace` on the command line."""

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

PROGRAM = "import numpy as np; np.ones((8, 9)) @ np.ones((9, 7)); raise SystemExit(4)"


@pytest.fixture
def record(tmp_path: Path) -> Path:
    path = tmp_path / "record.json"
    x = np.ones((8, 9), "float32")
    inverse = call("numpy.linalg.inv", np.ones((3, 3)), count=3, total_s=0.5)
    path.write_bytes(encoded(trace_of(call("numpy.exp", x, count=1000, total_s=1.5), inverse)))
    return path


def test_a_program_is_recorded_into_a_file(
    tuner: Callable[..., Any], home: Path, tmp_path: Path
) -> None:
    path = tmp_path / "calls.json"
    called = tuner("trace", "-o", str(path), "--", sys.executable, "-c", PROGRAM)
    assert (called.code, called.out, called.err) == (4, "", "")
    document = json.loads(path.read_text())
    assert document["schema"] == 1 and document["exit_code"] == 4
    (product,) = (each for each in document["calls"] if each["operator"] == "numpy.matmul")
    assert product["count"] == 1 and product["arguments"][0]["shape"] == [8, 9]


def test_a_program_without_python_is_said(
    tuner: Callable[..., Any], home: Path, tmp_path: Path
) -> None:
    called = tuner("trace", "-o", str(tmp_path / "calls.json"), "--", "true")
    assert called.code == 0 and "no Python that could be recorded" in called.err


def test_an_output_that_cannot_be_written_is_said_before_the_program_runs(
    tuner: Callable[..., Any], home: Path, tmp_path: Path
) -> None:
    for output, says in (("no/where.json", "no is no folder"), (str(tmp_path), "it is a folder")):
        called = tuner("trace", "-o", output, "--", "touch", str(tmp_path / "ran"))
        assert called.code == 2 and says in called.err
    assert not (tmp_path / "ran").exists()


def test_coverage_says_what_could_be_tuned(
    tuner: Callable[..., Any], home: Path, record: Path
) -> None:
    called = tuner("coverage", str(record), "--json")
    first, second = called.document["items"]
    assert (first["operator"], first["state"]) == ("numpy.exp", "untuned")
    assert (second["state"], second["kernels_s"]) == ("fallback", None)
    assert called.document["untuned_s"] == 1.5 and called.document["total_s"] == 2.0
    said = tuner("coverage", str(record)).out
    assert "75% could be tuned" in said and "25% left to the library" in said
    assert "untuned calls have no estimate: 0 kernels" in called.err


def test_a_record_is_tuned_by_itself_and_here(
    tuner: Callable[..., Any], home: Path, record: Path
) -> None:
    called = tuner("tune", "matmul:M=4,N=4,K=4", "--trace", str(record))
    assert called.code == 2 and "tuned by itself" in called.err
    called = tuner("tune", "--trace", str(record), "--server", "http://127.0.0.1:9")
    assert called.code == 2 and "tuned on this machine" in called.err
    called = tuner("tune", "--trace", "nothing.json")
    assert called.code == 2 and "cannot be read" in called.err
