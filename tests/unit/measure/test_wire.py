"""Framing and codecs: round trips, and a clear end for everything that is not a message."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.measure.assignment import (
    Request,
    outcome_from_document,
    outcome_to_document,
    request_from_document,
    request_to_document,
)
from tuner.measure.outcome import Conditions, Failed, FailureKind, Timed
from tuner.measure.timing import PROMOTION
from tuner.measure.wire import Late, WireError, receive, send


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for descriptor in (reading, writing):
        try:
            os.close(descriptor)
        except OSError:
            continue


@given(
    st.dictionaries(st.text(), st.integers() | st.floats(allow_nan=False) | st.text(), max_size=5)
)
def test_messages_round_trip(document: dict[str, object]) -> None:
    reading, writing = os.pipe()
    send(writing, document)
    os.close(writing)
    assert receive(reading, timeout_s=1) == document
    assert receive(reading, timeout_s=1) is None
    os.close(reading)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\0\0", "cut off"),
        (struct.pack(">I", 10) + b"{}", "ended after 2 of 10"),
        (struct.pack(">I", 2) + b"}{", "not JSON"),
        (struct.pack(">I", 2) + b"[]", "not a JSON object"),
        (b"\xff\xff\xff\xff", "at most"),
    ],
)
def test_broken_streams_are_told(pipe: tuple[int, int], data: bytes, message: str) -> None:
    os.write(pipe[1], data)
    os.close(pipe[1])
    with pytest.raises(WireError, match=message):
        receive(pipe[0], timeout_s=1)


@pytest.mark.parametrize("timeout_s", [0.0, 0.0004, 0.0104])
def test_silence_is_told_when_the_time_is_over_and_never_before(
    pipe: tuple[int, int], timeout_s: float
) -> None:
    deadline = time.monotonic() + timeout_s
    with pytest.raises(Late, match="in time"):
        receive(pipe[0], timeout_s=timeout_s)
    assert time.monotonic() >= deadline


def test_a_closed_end_is_told_at_once(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    with pytest.raises(WireError, match="cannot send"):
        send(pipe[1], {"a": 1})


def test_requests_and_outcomes_round_trip() -> None:
    request = Request(
        name="t",
        library="l.so",
        symbol="s",
        plan=PROMOTION,
        verification="promotion",
        abandon_above_s=0.1,
    )
    assert request_from_document(request_to_document(request)) == request
    conditions = Conditions(lane="cpu:1", isolation="process", steal_s=0.0)
    timed = Timed(samples_s=(1.0, 2.0), max_rel_error=1e-7, conditions=conditions, artifact="a")
    for outcome in (timed, Failed(kind=FailureKind.RUN_CRASH, message="m")):
        assert outcome_from_document(outcome_to_document(outcome)) == outcome
