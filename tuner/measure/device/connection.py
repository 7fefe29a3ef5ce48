"""The host's end of an agent: a command that starts it, and frames over its standard streams.

The command may be anything that carries bytes both ways: `ssh HOST ./tuner-agent`, or an
emulator. So the device opens no port, and who may speak to whom is the shell's business.
"""

from __future__ import annotations

import hashlib
import os
import select
import subprocess
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO, TypeVar

from tuner.errors import TunerError
from tuner.measure.assignment import Device
from tuner.measure.device import protocol
from tuner.measure.device.protocol import (
    HEADER,
    Answer,
    Ask,
    Binding,
    DeviceFacts,
    Ended,
    FrameError,
    Surroundings,
)
from tuner.measure.outcome import printable

START_S = 40.0  # for ssh to connect, and for an emulator to start
SILENT_S = 12.0  # an agent that works says so every second
SEND_S = 120.0  # of one tensor over a slow link
ANSWER_S = 300.0  # of a whole answer, beyond what its candidate may work, however it goes on
END_S = 2.0
LAST_WORDS_S = 0.2  # they may be on their way
QUOTED_BYTES = 500  # of what the command wrote to standard error
MOST_LIBRARIES = 8  # kept on the device


Read = TypeVar("Read")


class DeviceError(TunerError):
    """The device cannot be used, was lost, or says what it must not."""

    code = "device"


class CandidateEnded(Exception):
    """The candidate's process on the device is gone."""

    def __init__(self, ended: Ended) -> None:
        super().__init__(ended)
        self.ended = ended


class CallFailed(Exception):
    """The candidate's function returned an error code."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class _LastWords:
    """The end of what a stream says. A thread reads it: nothing of it fills a disk."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._tail = b""
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def text(self) -> str:
        self._thread.join(LAST_WORDS_S)
        return printable(self._tail.decode("utf-8", "replace").strip())

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            while part := stream.read(1 << 16):
                self._tail = (self._tail + part)[-QUOTED_BYTES:]


def _no_answer(header: bytes) -> str:
    """What came in the place of an answer: an agent's frame, or what its shell had to say."""
    text = header.decode("ascii", "replace")
    if header.isascii() and all(letter.isprintable() or letter.isspace() for letter in text):
        return (
            f"it wrote {text!r}…, which no agent says; nothing else may write to its standard "
            f"output, such as a shell that greets"
        )
    kind, length = HEADER.unpack(header)
    return f"it answered with {length} bytes of type {kind}"


class Connection:
    """A started agent. Not thread-safe; close it, or use it as a context.

    Every method raises DeviceError where the agent is gone, silent, or breaks the
    protocol; the connection is then closed. Those of a candidate raise CandidateEnded.
    """

    def __init__(self, device: Device) -> None:
        """Starts the agent, and asks it for its machine."""
        self.device = device
        self._work_s = 0.0  # that the candidate may work
        self._kept: OrderedDict[bytes, bool] = OrderedDict()  # hash: whether it is a library
        try:
            self._process = subprocess.Popen(
                device.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=device.folder or None,
                start_new_session=True,
            )
        except OSError as error:
            raise DeviceError(f"{device.text} cannot be started: {error}") from error
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        assert process.stderr is not None
        self._to, self._from = process.stdin, process.stdout
        self._last_words = _LastWords(process.stderr)
        os.set_blocking(self._to.fileno(), False)
        payload = self._ask(Ask.HELLO, protocol.number(protocol.VERSION), patience_s=START_S)
        self.facts: DeviceFacts = self._read(DeviceFacts.of, payload)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def keep(self, content: bytes | memoryview, *, library: bool = False) -> bytes:
        """Sends what the device does not have yet; its hash. Old libraries make room."""
        digest = hashlib.sha256(content).digest()
        if digest in self._kept:
            self._kept.move_to_end(digest)
            return digest
        if len(content) > protocol.MAX_BLOB:
            raise DeviceError(
                f"a tensor of {len(content)} bytes; a device takes {protocol.MAX_BLOB} at most"
            )
        libraries = [key for key, is_library in self._kept.items() if is_library]
        if library and len(libraries) >= MOST_LIBRARIES:
            self._forget(libraries[0])
        self._ask(Ask.BLOB, digest, content)
        self._kept[digest] = library
        return digest

    def forget_all(self) -> None:
        for digest in [*self._kept]:
            self._forget(digest)

    def forget_tensors(self) -> None:
        """Forgets all but libraries."""
        for digest in [key for key, is_library in self._kept.items() if not is_library]:
            self._forget(digest)

    def open(self, library: bytes, *, deadline_s: float, threads: int, memory_bytes: int) -> str:
        """Loads a kept library in a process of its own; its description of itself."""
        payload = protocol.opening(
            library, deadline_s=deadline_s, threads=threads, memory_bytes=memory_bytes
        )
        self._work_s = deadline_s
        return self._ask(Ask.OPEN, payload).decode("utf-8", "replace")

    def bind(self, binding: Binding) -> None:
        """Raises FrameError for a function that the protocol cannot name or has no room for."""
        self._ask(Ask.BIND, binding.packed())

    def run(
        self,
        case: int,
        *,
        number: int,
        repeat: int,
        poison: int = protocol.KEEP,
        settle_us: int = 0,
    ) -> tuple[float, ...]:
        """Seconds of one call: `repeat` samples of `number` calls each.

        Raises CallFailed where the function returned an error code.
        """
        payload = protocol.running(
            case, poison=poison, number=number, repeat=repeat, settle_us=settle_us
        )
        return self._read(protocol.numbers, self._ask(Ask.RUN, payload, expected=8 * repeat))

    def output(self, index: int, nbytes: int) -> bytes:
        return self._ask(Ask.OUTPUT, protocol.number(index), expected=nbytes)

    def check(self) -> Surroundings:
        return self._read(Surroundings.of, self._ask(Ask.CHECK))

    def pace_s(self) -> float:
        """Seconds of the calibration kernel."""
        (seconds,) = self._read(protocol.numbers, self._ask(Ask.PACE))
        if seconds <= 0:
            raise self._lost(f"its calibration kernel takes {seconds} s")
        return seconds

    def close_candidate(self) -> None:
        self._ask(Ask.CLOSE)

    def limits(self, seconds: float, most_bytes: int) -> tuple[float, ...]:
        """What tuner/target/limits.c measured: the multiply-add rate (median, best), then
        rows of a working set and its bandwidths. Empty where the agent has no such code."""
        return self._read(
            protocol.numbers, self._ask(Ask.MEASURE, protocol.measuring(seconds, most_bytes))
        )

    @property
    def is_open(self) -> bool:
        return not self._from.closed

    def close(self) -> None:
        """End the agent. Idempotent."""
        if not self.is_open:
            return
        for stream in (self._to, self._from):
            with suppress(OSError):
                stream.close()  # the agent ends with its streams, and its candidate with it
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _forget(self, digest: bytes) -> None:
        del self._kept[digest]
        self._ask(Ask.FORGET, digest)

    def _ask(
        self,
        asked: Ask,
        *parts: bytes | memoryview,
        expected: int = 0,
        patience_s: float = SILENT_S,
    ) -> bytes:
        """The answer to a request."""
        if not self.is_open:
            raise DeviceError(f"{self.device.text} was lost")
        self._write(HEADER.pack(asked, sum(map(len, parts))), *parts)
        return self._answer(protocol.lengths(asked, expected), patience_s)

    def _answer(self, answers: Mapping[int, tuple[int, int]], patience_s: float) -> bytes:
        deadline = time.monotonic() + ANSWER_S + self._work_s
        while True:
            header = self._bytes(HEADER.size, patience_s, deadline)
            kind, length = HEADER.unpack(header)
            least, most = answers.get(kind, (1, 0))
            if not least <= length <= most:
                raise self._lost(_no_answer(header))
            payload = self._bytes(length, SILENT_S, deadline)
            match kind:
                case Answer.BEAT:
                    patience_s = SILENT_S
                case Answer.REFUSED:
                    raise self._lost(f"it refused {protocol.refusal_of(payload)}")
                case Answer.ENDED:
                    raise CandidateEnded(self._read(Ended.of, payload))
                case Answer.STATUS:
                    raise CallFailed(*protocol.status_of(payload))
                case _:
                    return payload

    def _bytes(self, length: int, patience_s: float, deadline: float) -> bytes:
        data, waiting = bytearray(), select.poll()
        waiting.register(self._from, select.POLLIN)
        while len(data) < length:
            # Signs of life, or a byte now and then, are no answer.
            if time.monotonic() >= deadline:
                raise self._lost(f"it gave no answer within {ANSWER_S + self._work_s:.0f} s")
            if not waiting.poll(patience_s * 1000):
                raise self._lost(f"it was silent for {patience_s:.0f} s")
            part = os.read(self._from.fileno(), min(length - len(data), 1 << 20))
            if not part:
                raise self._lost("it ended")
            data += part
        return bytes(data)

    def _write(self, *parts: bytes | memoryview) -> None:
        waiting, deadline = select.poll(), time.monotonic() + SEND_S
        waiting.register(self._to, select.POLLOUT)
        for part in parts:
            data = memoryview(part).cast("B")
            while data:
                if not waiting.poll(max(0.0, deadline - time.monotonic()) * 1000):
                    raise self._lost(f"it took nothing for {SEND_S:.0f} s")
                try:
                    data = data[os.write(self._to.fileno(), data[: 1 << 20]) :]
                except BlockingIOError:
                    continue
                except OSError:
                    # What it said before it ended is worth more than that it ended.
                    self._answer({}, END_S)

    def _read(self, reader: Callable[[bytes], Read], payload: bytes) -> Read:
        """What a payload says. A device that breaks the protocol is let go."""
        try:
            return reader(payload)
        except FrameError as error:
            raise self._lost(f"it says what cannot be: {error}") from error

    def _lost(self, reason: str) -> DeviceError:
        """Closes the connection; the error to raise."""
        said = self._said()
        self.close()
        return DeviceError(f"{self.device.text}: {reason}{said}")

    def _said(self) -> str:
        text = self._last_words.text()
        return f"; it wrote: {text}" if text else ""
