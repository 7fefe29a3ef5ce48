"""A relay for devices that dial out: their agents' connections wait here for a host.

A device connects by TLS, says a line with its key and its name, and then its agent is at the
other end. A host of this machine connects to a socket of the file system, says the name, and
has the agent's stream. So a device is still a command to everybody else
(`tuner agent reach NAME`), and the relay reads nothing of what it carries.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import TunerError

GREETING_S = 10.0  # for TLS, and for the line that follows
GREETING_BYTES = 512
WAIT_S = 20.0  # that a host waits for a device which is not there
POLL_S = 0.1
CHUNK = 1 << 16
MOST_DEVICES = 256  # connections, with those that have not said their key
SOCKET_BYTES = 107  # of a path of a socket, by Linux
# After so long without an answer a silent connection is taken for dead.
KEEPALIVE_S, KEEPALIVE_TRIES = 15, 4
FOUND, MISSING = b"+\n", b"-\n"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")

Admit = Callable[[str], str | None]
"""The id of a key that may bring devices, by its token; None for any other text."""


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Both directions of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def line(self) -> str:
        """The first line; empty for one that is too long, late or no text."""
        try:
            data = await asyncio.wait_for(self.reader.readline(), GREETING_S)
            whole = data.endswith(b"\n") and len(data) <= GREETING_BYTES
            return data.decode("ascii").strip() if whole else ""
        except (TimeoutError, ValueError, OSError):
            return ""

    def close(self) -> None:
        with suppress(OSError, RuntimeError):
            self.writer.close()


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A device without a host."""

    key: str
    token: str
    stream: Stream
    host: asyncio.Future[Stream]


class Relay:
    """Pairs hosts with devices."""

    def __init__(
        self, admit: Admit, note: Callable[[str], object], *, wait_s: float = WAIT_S
    ) -> None:
        """`note` hears of devices that come, go and are refused. `wait_s`: how long a host
        waits for a device that is not there."""
        self._admit, self._note, self._wait_s = admit, note, wait_s
        self._waiting: dict[str, _Waiting] = {}
        self._devices = 0

    async def serve(
        self,
        *,
        host: str,
        port: int,
        context: ssl.SSLContext,
        path: Path,
        ready: Callable[[int], object],
    ) -> None:
        """Listens until it is cancelled, for hosts at `path`, which must be free.

        `ready` is called with the port, which may be given as 0. Raises OSError.
        """
        devices = await asyncio.start_server(
            self._device,
            host,
            port,
            ssl=context,
            ssl_handshake_timeout=GREETING_S,
            limit=CHUNK,
        )
        hosts = await asyncio.start_unix_server(self._host, path, limit=CHUNK)
        ready(devices.sockets[0].getsockname()[1])
        try:
            async with devices, hosts:
                await asyncio.gather(devices.serve_forever(), hosts.serve_forever())
        finally:
            path.unlink(missing_ok=True)

    async def _device(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream, peer = Stream(reader, writer), writer.get_extra_info("peername")
        if self._devices >= MOST_DEVICES:
            stream.close()
            return
        self._devices += 1
        try:
            _keep_alive(writer)
            token, _, name = (await stream.line()).partition(" ")
            try:
                key = await asyncio.to_thread(self._admit, token)
            except TunerError as error:  # it dials again
                self._note(f"a device of {peer[0]} was let go: its key was not looked up: {error}")
                return
            if key is None or not NAME.match(name):
                self._note(f"a device of {peer[0]} was refused: its key or its name is none")
                return
            await self._wait(name, _Waiting(key, token, stream, _future()))
        finally:
            self._devices -= 1
            stream.close()

    async def _wait(self, name: str, device: _Waiting) -> None:
        """Until a host takes the device, and then until either ends."""
        before = self._waiting.get(name)
        if before is not None and before.key != device.key:
            self._note(f"a second {name} was refused: another key's device has that name")
            return
        if before is not None:  # its connection may be dead without having ended
            before.stream.close()
        self._waiting[name] = device
        self._note(f"{name} is there")
        # An agent speaks when it is spoken to: whatever comes now is an end.
        watch = asyncio.ensure_future(device.stream.reader.read(1))
        either: set[asyncio.Future[Any]] = {watch, device.host}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)  # two cannot read at a time
            if self._waiting.get(name) is device:
                del self._waiting[name]
        if not device.host.done():
            self._note(f"{name} is gone")
            return
        await _joined(device.stream, device.host.result())

    async def _host(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream, device = Stream(reader, writer), None
        try:
            device = await self._taken(await stream.line())
            writer.write(MISSING if device is None else FOUND)
        finally:
            if device is None:
                stream.close()
        if device is not None:
            device.host.set_result(stream)

    async def _taken(self, name: str) -> _Waiting | None:
        """The device of that name, whose key still holds good. None after a while."""
        deadline = asyncio.get_running_loop().time() + self._wait_s
        while asyncio.get_running_loop().time() < deadline:
            device = self._waiting.pop(name, None)
            if device is None:
                await asyncio.sleep(POLL_S)
            elif not await self._holds_good(device):
                self._note(f"{name} is let go: its key was revoked or has expired")
                device.stream.close()
            elif not (device.stream.writer.is_closing() or device.stream.reader.at_eof()):
                return device
        return None

    async def _holds_good(self, device: _Waiting) -> bool:
        try:
            return await asyncio.to_thread(self._admit, device.token) == device.key
        except BaseException:
            device.stream.close()  # it has no place any more, and is to dial again
            raise


def _future() -> asyncio.Future[Stream]:
    return asyncio.get_running_loop().create_future()


async def _joined(first: Stream, second: Stream) -> None:
    """Carries bytes both ways until one side ends."""
    ways = [
        asyncio.ensure_future(_carried(source, sink))
        for source, sink in ((first, second), (second, first))
    ]
    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    for way in ways:
        way.cancel()
    second.close()


async def _carried(source: Stream, sink: Stream) -> None:
    with suppress(OSError):
        while data := await source.reader.read(CHUNK):
            sink.writer.write(data)
            await sink.writer.drain()


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    """Has the system ask a silent device for a sign of life, also past routers that forget."""
    connection = writer.get_extra_info("socket")
    for level, option, value in (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_S),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_TRIES),
    ):
        connection.setsockopt(level, option, value)
