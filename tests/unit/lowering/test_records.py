"""MetaSchedule databases read as data: what is taken, and each way in which a record or
a file is refused."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tuner.lowering.importers.records import (
    MOST_INSTRUCTIONS,
    RECORDS,
    WORKLOADS,
    ForeignRecord,
    RecordError,
    read_database,
)

GRAPH = {
    "root_index": 1,
    "nodes": [{"type": "None"}, {"type": "ir.IRModule", "data": {}}],
    "metadata": {},
}
SPLIT = ["Split", ["l1", 4, 8], [True, False], ["l2", "l3"]]


def packed(graph: object) -> str:
    text = json.dumps(graph).encode()
    return json.dumps(
        ["7616127157452113249", base64.b64encode(len(text).to_bytes(8, "little") + text).decode()]
    )


def record(instructions: object, *, workload: object = 0, seconds: object = (1e-3,)) -> str:
    return json.dumps([workload, [[instructions, []], seconds, {"kind": "llvm"}, []]])


def written(folder: Path, workloads: str, records: str) -> Path:
    (folder / WORKLOADS).write_text(workloads)
    (folder / RECORDS).write_text(records)
    return folder


def one(folder: Path, line: str, graph: object = GRAPH) -> ForeignRecord | RecordError:
    (record_read,) = read_database(written(folder, packed(graph) + "\n", line + "\n"))
    return record_read


def test_a_record_is_taken(tmp_path: Path) -> None:
    foreign = one(
        tmp_path,
        record(
            [SPLIT, ["Annotate", ["l2", 16], ["pragma_auto_unroll_max_step"], []]],
            seconds=[1e-3, 3e-3],
        ),
    )
    assert (
        isinstance(foreign, ForeignRecord)
        and foreign.number == 1
        and foreign.claimed_s == pytest.approx(2e-3)
    )
    assert json.loads(foreign.workload) == GRAPH and json.loads(foreign.trace)[0][0] == SPLIT


REFUSED: dict[str, tuple[str, str]] = {
    "no JSON": ("{", "malformed"),
    "deep JSON": ("[" * 200_000, "malformed"),
    "another document": (json.dumps({"a": 1}), "it is not"),
    "a workload that is not there": (record([SPLIT], workload=1), "that is there"),
    "a workload before the first": (record([SPLIT], workload=-1), "that is there"),
    "a tensor intrinsic": (
        record([["Tensorize", ["b0"], ["evil", True], []]]),
        "'Tensorize' is no primitive",
    ),
    "a layout map": (
        record([["TransformLayout", ["b0"], [0, 0, "{}"], []]]),
        "'TransformLayout' is no primitive",
    ),
    "a source of its own": (
        record([["Annotate", ["l2", "int evil;"], ["pragma_import_c"], []]]),
        "annotates with",
    ),
    "a source beside a note": (
        record([["Annotate", ["l2", "meta_schedule.x"], ["pragma_import_llvm"], []]]),
        "annotates with",
    ),
    "another note": (record([["Annotate", ["l2", 1], ["software"], []]]), "annotates with"),
    "no instruction": (record([3]), "an instruction is not"),
    "too many instructions": (record([SPLIT] * (MOST_INSTRUCTIONS + 1)), "instructions; at most"),
    "no number": (record([SPLIT]).replace("0.001", "NaN"), "malformed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_records_that_may_not_be_replayed_are_refused(tmp_path: Path, case: str) -> None:
    line, reason = REFUSED[case]
    error = one(tmp_path, line)
    assert isinstance(error, RecordError) and "record 1" in str(error) and reason in str(error)


@pytest.mark.parametrize("seconds", [[], "fast", [-1.0, True, 1e300], {"a": 1}])
def test_a_claim_that_makes_no_sense_is_no_claim(tmp_path: Path, seconds: object) -> None:
    foreign = one(tmp_path, record([SPLIT], seconds=seconds))
    assert isinstance(foreign, ForeignRecord) and foreign.claimed_s is None


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        ({**GRAPH, "nodes": [{"type": "ffi.Module", "data": "AAAA"}]}, "holds 'ffi.Module'"),
        ({**GRAPH, "nodes": [{"type": "runtime.Module"}]}, "holds 'runtime.Module'"),
        ({**GRAPH, "nodes": [{"type": ["ir.IntImm"]}]}, "which no program"),
        ({**GRAPH, "nodes": [3]}, "which no program"),
        ({**GRAPH, "nodes": [{"type": "ffi.String", "data": "pragma_import_c"}]}, "has the pragma"),
        ({"nodes": {}}, "no graph"),
        ([], "no graph"),
    ],
)
def test_workloads_with_more_than_plain_loops_are_refused(
    tmp_path: Path, graph: Any, reason: str
) -> None:
    error = one(tmp_path, record([SPLIT]), graph)
    assert isinstance(error, RecordError) and reason in str(error)


@pytest.mark.parametrize(
    "line", ['["1", "!!!"]', '["1", "AAAA"]', '["1", "CAAAAAAAAAB7"]', "[1]", '"x"']
)
def test_workloads_that_are_cut_or_no_workloads_are_refused(tmp_path: Path, line: str) -> None:
    (error,) = read_database(written(tmp_path, line + "\n", record([SPLIT]) + "\n"))
    assert isinstance(error, RecordError)


def test_directories_without_a_database_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="a MetaSchedule work_dir has"):
        read_database(tmp_path)
    written(tmp_path, "", "")
    assert read_database(tmp_path) == ()
    (tmp_path / RECORDS).unlink()
    (tmp_path / RECORDS).symlink_to("/etc/passwd")
    with pytest.raises(RecordError, match="is a link"):
        read_database(tmp_path)
    (tmp_path / RECORDS).unlink()
    (tmp_path / RECORDS).write_bytes(b"\xff\xfe")
    with pytest.raises(RecordError, match="is no text"):
        read_database(tmp_path)
