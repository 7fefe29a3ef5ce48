"""Letters reach a lane whole and in order, tell it of libraries of its machine alone,
and never keep a builder waiting."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from threading import Thread

from tuner.workers.fleet.handoff import HandoffMessage, HandoffQueue, decoded, handoff_path, post
from tuner.workers.fleet.messages import Library, MeasureRequest


def handoff(storage: Path, number: int, best_s: float | None = None) -> HandoffMessage:
    library = Library(
        sha256=f"{number:064x}", path=str(storage / f"{number:064x}.so"), symbol="kernel"
    )
    return HandoffMessage(
        problem="0123456789abcdef",
        request=MeasureRequest(number=number, library=library, best_s=best_s),
    )


def test_letters_come_as_they_were_posted_until_the_box_is_closed(tmp_path: Path) -> None:
    box = HandoffQueue(tmp_path, "host/cpu:1")
    assert stat.S_IMODE(handoff_path(tmp_path, "host/cpu:1").stat().st_mode) == 0o600
    received: list[HandoffMessage] = []
    reader = Thread(target=lambda: received.extend(box.handoffs()))
    reader.start()
    sent = [
        handoff(tmp_path, number, best_s=None if number % 2 else 1e-3 / 3) for number in range(50)
    ]
    for message in sent:
        post(tmp_path, "host/cpu:1", message)
    box.close()
    reader.join(timeout=10)
    assert received == sent


def test_what_is_no_letter_is_passed_over(tmp_path: Path) -> None:
    good = handoff(tmp_path, 1)
    assert decoded(good.encoded().strip(), tmp_path) == good
    assert (
        decoded(good.encoded(), tmp_path / "other") is None
    )  # a library that is not among this machine's
    for line in (
        b"{",
        b"[]",
        b"7",
        b'{"number": 1}',
        b"\xff\xfe",
        good.encoded().replace(b'"number": 1', b'"number": "one"'),
    ):
        assert decoded(line, tmp_path) is None


def test_a_builder_never_waits_for_a_lane(tmp_path: Path) -> None:
    post(tmp_path, "cpu:1", handoff(tmp_path, 1))  # no such lane
    unread = HandoffQueue(tmp_path, "cpu:1")
    for number in range(2000):  # more than a pipe holds
        post(tmp_path, "cpu:1", handoff(tmp_path, number))
    again = HandoffQueue(
        tmp_path, "cpu:1"
    )  # a lane in the place of one that was lost begins with nothing
    reader = Thread(target=lambda: received.extend(again.handoffs()))
    received: list[HandoffMessage] = []
    reader.start()
    post(tmp_path, "cpu:1", handoff(tmp_path, 7))
    again.close()
    reader.join(timeout=10)
    assert [message.request.number for message in received] == [7]
    assert os.listdir(tmp_path) == [handoff_path(tmp_path, "cpu:1").name]
    del unread
