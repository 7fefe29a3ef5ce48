"""The record of a program's calls: written, read, merged from its processes' files."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.traced_calls import call, trace_of
from tuner.errors import UsageError
from tuner.trace.record import TracedCall, encoded, is_dense, merged, read
from tuner.trace.recorder.output import SLOTS, Output
from tuner.trace.workloads import express

ADD = {"library": "numpy", "operator": "numpy.add"}
VECTOR = {"shape": [3], "strides": [1], "dtype": "float32"}


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    trace = trace_of(
        call("numpy.add", np.ones((2, 3)), 1.5, count=7, total_s=0.25),
        call("aten::cat", {"list": [VECTOR, VECTOR]}, {"value": [0, 1]}, total_s=0.5),
    )
    (tmp_path / "trace.json").write_bytes(encoded(trace))
    assert read(tmp_path / "trace.json") == trace
    assert trace.total_s == 0.75


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema": 2}, "schema 2, this version reads 1"),
        ({"calls": [{}]}, "no whole record"),
        ({"calls": [{**ADD, "library": "cupy", "arguments": [], "count": 1, "total_s": 1}]},
         "cupy"),
        ({"calls": [{**ADD, "arguments": [], "count": -1, "total_s": 1}]}, "count -1"),
        ({"calls": [{**ADD, "arguments": [{**VECTOR, "shape": [-3]}], "count": 1, "total_s": 1}]},
         "shape"),
        ({"calls": [{**ADD, "arguments": [{**VECTOR, "shape": ["3"]}], "count": 1, "total_s": 1}]},
         "shape"),
        ({"processes": None}, "no whole record"),
        ({"exit_code": float("inf")}, "no whole record"),
        ({"elapsed_s": 10**400}, "no whole record"),
    ],
)  # fmt: skip
def test_what_is_no_record_is_refused(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(encoded(trace_of()))
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(UsageError, match=says):
        read(path)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path / "missing.json")
    (tmp_path / "text").write_text("no json")
    (tmp_path / "deep").write_text("[" * 100_000)
    for name in ("text", "deep"):
        with pytest.raises(UsageError, match="not JSON"):
            read(tmp_path / name)


def test_equal_calls_of_several_processes_are_one(tmp_path: Path) -> None:
    for calls, nanoseconds in ((2.0, 3e9), (5.0, 1e9)):
        output = Output(str(tmp_path))
        output.note("half")
        slot = output.describe({**ADD, "arguments": [VECTOR]})
        output.add(slot, calls, nanoseconds)
        output.describe({**ADD, "arguments": []})  # never counted
    processes, (added,) = merged(tmp_path)
    assert (added.count, added.total_s, added.operator) == (7.0, 4.0, "numpy.add")
    assert [process.notes for process in processes] == [("half",), ("half",)]


def test_a_line_that_a_killed_process_left_half_written_is_passed_over(tmp_path: Path) -> None:
    lines = json.dumps({"slot": 1, **ADD, "arguments": [VECTOR]}) + '\n{"slot": 2, "libr'
    (tmp_path / "1-1.lines").write_text(lines)
    (tmp_path / "1-1.slots").write_bytes(struct.pack("6d", 0, 0, 1, 1e9, 1, 1e9))
    _, calls = merged(tmp_path)
    assert [each.count for each in calls] == [1.0]


def test_a_process_with_too_many_kinds_of_calls_counts_the_first(tmp_path: Path) -> None:
    output = Output(str(tmp_path))
    output._next = SLOTS - 1
    assert output.describe({**ADD, "arguments": []}) == SLOTS - 1
    assert output.describe({**ADD, "arguments": []}) == 0


@pytest.mark.parametrize(
    ("shape", "strides", "dense"),
    [
        ([2, 3], [3, 1], True), ([2, 3], [1, 2], False), ([2, 1], [1, 99], True), ([], [], True),
        ([2, 3], None, False), ([4], [2], False),
    ],
)  # fmt: skip
def test_density(shape: list[int], strides: list[int] | None, dense: bool) -> None:
    assert is_dense(shape, strides) == dense


def test_shapes_mark_what_is_not_dense() -> None:
    x = np.ones((2, 3), "float32")
    assert call("numpy.add", x, x.T, 2.0).shapes == "2×3 3×2*"
    assert call("aten::cat", {"list": [VECTOR, VECTOR]}).shapes == "[3 3]"


@pytest.mark.parametrize("arguments", [[], [{"value": 5}, {"name": "x"}], [{"type": "bytes"}]])
def test_calls_of_sessions_that_lack_something_have_a_reason(arguments: list[Any]) -> None:
    described = TracedCall(
        library="onnxruntime",
        operator="InferenceSession.run",
        arguments=tuple(arguments),
        count=1.0,
        total_s=1.0,
    )
    assert express(described).reason
