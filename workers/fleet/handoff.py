"""Hand-off queues, by which builders pass candidates to lanes of the same machine at once.

The lane gets a head start. The driver learns of the build meanwhile, sends the candidate
as it sends all others, and gets the measurement that the lane began. A hand-off message
alone decides nothing: if it is lost, late, or about a candidate that the driver does not
send, it costs at most a measurement.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tuner.workers.fleet.messages import Library, MeasureRequest

LONGEST = 4096  # bytes that a pipe takes atomically


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffMessage:
    """A candidate that a lane may begin with."""

    problem: str  # key
    request: MeasureRequest

    def encoded(self) -> bytes:
        """The message as a line of JSON, without the library's files."""
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
    """The hand-off message of a line.

    None for a line that is none, or names a library outside of `storage`.
    """
    try:
        document = json.loads(line)
        library = Library(
            sha256=str(document["sha256"]),
            path=str(document["path"]),
            symbol=str(document["symbol"]),
        )
        best_s = None if document["best_s"] is None else float(document["best_s"])
        request = MeasureRequest(number=int(document["number"]), library=library, best_s=best_s)
        handoff = HandoffMessage(problem=str(document["problem"]), request=request)
    except (ValueError, KeyError, TypeError):
        return None
    return handoff if Path(library.path).parent == storage else None


def handoff_path(storage: Path, lane: str) -> Path:
    """The path of a lane's queue, in the directory that builders and lanes share."""
    return storage / f".letters-{lane.replace('/', '+')}"


def post(storage: Path, lane: str, handoff: HandoffMessage) -> None:
    """Writes the message into the lane's queue, if the lane reads it."""
    line = handoff.encoded()
    if len(line) > LONGEST:
        return
    # Without a lane, or with a full queue, the driver sends the candidate anyway.
    with suppress(OSError):
        box = os.open(handoff_path(storage, lane), os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(box, line)
        finally:
            os.close(box)


class HandoffQueue:
    """The reading end of a lane's queue."""

    def __init__(self, storage: Path, lane: str) -> None:
        """Replaces a queue that an earlier lane of this name left."""
        self._storage, path = storage, handoff_path(storage, lane)
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        # Opened for writing as well, or it would end with the writer of each message.
        self._box = os.open(path, os.O_RDWR)

    def handoffs(self) -> Iterator[HandoffMessage]:
        """The messages as they arrive, until `close`."""
        while True:
            for line in os.read(self._box, LONGEST * 16).splitlines():
                if not line:
                    return
                handoff = decoded(line, self._storage)
                if handoff is not None:
                    yield handoff

    def close(self) -> None:
        """Ends `handoffs`."""
        os.write(self._box, b"\n")
