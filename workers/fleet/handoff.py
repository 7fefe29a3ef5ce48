"""A lane's hand-off queue: by it a builder of the same machine hands over a candidate at
once, and the lane has a head start.

The driver, which learns of the build meanwhile, sends the candidate as it sends all
others, and gets what the lane began. A hand-off message alone decides nothing: one that is lost,
late, or about what the driver does not send costs at most the measurement.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tuner.workers.fleet.messages import Library, MeasureRequest

LONGEST = 4096  # bytes: what a pipe takes whole or not at all


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffMessage:
    """A candidate that a lane may begin with."""

    problem: str  # key
    request: MeasureRequest

    def encoded(self) -> bytes:
        """One line; a library's files do not travel this way."""
        library = self.request.library
        document = {
            "problem": self.problem,
            "number": self.request.number,
            "sha256": library.sha256,
            "path": library.path,
            "symbol": library.symbol,
            "best_s": self.request.best_s,
        }
        return json.dumps(document).encode() + b"\n"


def decoded(line: bytes, storage: Path) -> HandoffMessage | None:
    """The hand-off message of a line; None for what is none, or names a library elsewhere than in
    `storage`."""
    try:
        said = json.loads(line)
        library = Library(
            sha256=str(said["sha256"]), path=str(said["path"]), symbol=str(said["symbol"])
        )
        best_s = None if said["best_s"] is None else float(said["best_s"])
        request = MeasureRequest(number=int(said["number"]), library=library, best_s=best_s)
        handoff = HandoffMessage(problem=str(said["problem"]), request=request)
    except (ValueError, KeyError, TypeError):
        return None
    return handoff if Path(library.path).parent == storage else None


def handoff_path(storage: Path, lane: str) -> Path:
    """Where a lane's hand-off messages go, among the libraries that builders and lanes
    of a machine share."""
    return storage / f".letters-{lane.replace('/', '+')}"


def post(storage: Path, lane: str, handoff: HandoffMessage) -> None:
    """Leaves the hand-off message, where the lane is there to take it."""
    line = handoff.encoded()
    if len(line) > LONGEST:
        return
    # no lane, or one with unread hand-off messages: the driver's way remains
    with suppress(OSError):
        box = os.open(handoff_path(storage, lane), os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(box, line)
        finally:
            os.close(box)


class HandoffQueue:
    """The lane's side."""

    def __init__(self, storage: Path, lane: str) -> None:
        """In the place of one that a lane of this name left."""
        self._storage, path = storage, handoff_path(storage, lane)
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        self._box = os.open(
            path, os.O_RDWR
        )  # to write as well: else it would end with each hand-off message's writer

    def handoffs(self) -> Iterator[HandoffMessage]:
        """Each as it comes, until `close`."""
        while True:
            for line in os.read(self._box, LONGEST * 16).splitlines():
                if not line:
                    return
                handoff = decoded(line, self._storage)
                if handoff is not None:
                    yield handoff

    def close(self) -> None:
        """Ends `hand-off messages`."""
        os.write(self._box, b"\n")
