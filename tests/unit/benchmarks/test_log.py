"""The log of a recording: it goes on where it was, whatever cut it short, and never
into another recording."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.search.log import RecordingLog
from tuner.errors import UsageError
from tuner.measure.outcome import Conditions, Failed, FailureKind, Timed

TIMED = Timed(
    samples_s=(1e-3, 2e-3),
    max_rel_error=0.0,
    conditions=Conditions(lane="cpu:1", isolation="none"),
    artifact="ab",
)
FAILED = Failed(kind=FailureKind.BUILD_ERROR, message="no")


def test_rows_come_back_and_the_last_word_counts(tmp_path: Path) -> None:
    log = RecordingLog(path=tmp_path / "t.jsonl", about={"spec": "a"})
    assert log.load() == ({}, set())
    log.append(3, FAILED)
    log.append(-1, TIMED)
    log.append(3, TIMED, again=True)
    assert RecordingLog(path=log.path, about={"spec": "a"}).load() == ({3: TIMED, -1: TIMED}, {3})


def test_a_line_cut_short_is_ignored(tmp_path: Path) -> None:
    log = RecordingLog(path=tmp_path / "t.jsonl", about={})
    log.load()
    log.append(0, TIMED)
    log.append(1, TIMED)
    whole = log.path.read_text()
    log.path.write_text(whole[:-20])
    assert log.load() == ({0: TIMED}, set())


def test_another_recording_is_refused(tmp_path: Path) -> None:
    RecordingLog(path=tmp_path / "t.jsonl", about={"spec": "a"}).load()
    with pytest.raises(UsageError, match="records another workload"):
        RecordingLog(path=tmp_path / "t.jsonl", about={"spec": "b"}).load()
