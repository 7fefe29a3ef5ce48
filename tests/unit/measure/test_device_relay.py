"""Devices that dial out: by openssl's client as a board does, and whoever is turned away."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.agents import native_agent
from tests.support.dialling_boards import board, certificate
from tuner.measure.assignment import Device
from tuner.measure.device import relay as relay_module
from tuner.measure.device.connection import Connection, DeviceError
from tuner.measure.device.reach import reach
from tuner.measure.device.relay import Relay

KEYS = {"tk_a_1": "a", "tk_b_2": "b"}


@dataclass
class Running:
    """A relay in a thread."""

    folder: Path
    port: int = 0
    notes: list[str] = field(default_factory=list)
    revoked: set[str] = field(default_factory=set)
    started: threading.Event = field(default_factory=threading.Event)

    @property
    def path(self) -> Path:
        return self.folder / "s"

    def admit(self, token: str) -> str | None:
        return None if token in self.revoked else KEYS.get(token)

    def ready(self, port: int) -> None:
        self.port = port
        self.started.set()

    def noted(self, text: str) -> None:
        """Waits until the relay has said so."""
        deadline = time.monotonic() + 20
        while not any(text in note for note in self.notes):
            assert time.monotonic() < deadline, self.notes
            time.sleep(0.01)

    def device(self, name: str) -> Device:
        code = f"from tuner.measure.device.reach import reach; from pathlib import Path; reach({name!r}, Path({str(self.path)!r}))"  # noqa: E501
        return Device(command=(sys.executable, "-c", code))


@pytest.fixture(scope="module")
def relay() -> Iterator[Running]:
    with tempfile.TemporaryDirectory(prefix="relay-") as folder:
        running = Running(Path(folder))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate(running.folder))
        made = Relay(running.admit, running.notes.append, wait_s=0.5)
        loop = asyncio.new_event_loop()
        task = loop.create_task(
            made.serve(
                host="127.0.0.1", port=0, context=context, path=running.path, ready=running.ready
            )
        )

        def run() -> None:
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(task)

        thread = threading.Thread(target=run)
        thread.start()
        assert running.started.wait(10)
        yield running
        loop.call_soon_threadsafe(task.cancel)
        thread.join(10)
        loop.close()
        assert not running.path.exists()


Dial = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def dial(relay: Running, tmp_path: Path) -> Iterator[Dial]:
    """Starts a board's script in a folder of its own."""
    boards: list[subprocess.Popen[bytes]] = []

    def start(name: str, token: str = "tk_a_1") -> subprocess.Popen[bytes]:
        boards.append(
            board(
                tmp_path / f"{len(boards)}",
                name=name,
                token=token,
                agent=native_agent().text,
                ca=relay.folder / "cert.pem",
                port=relay.port,
            )
        )
        return boards[-1]

    yield start
    for each in boards:
        with suppress(ProcessLookupError):
            os.killpg(each.pid, 15)
        each.communicate()


def test_a_host_has_the_agent_of_a_device_that_dialled_in(relay: Running, dial: Dial) -> None:
    dialled = dial("pi")
    relay.noted("pi is there")
    with Connection(relay.device("pi")) as connection:
        assert connection.facts.cores >= 1 and connection.pace_s() > 0
        content = os.urandom(1 << 20)
        assert len(connection.keep(content)) == 32
    assert dialled.wait(10) is not None, "the agent ends with its host, and the board dials again"


def test_who_has_no_key_is_turned_away(relay: Running, dial: Dial) -> None:
    for name, token in (("thief", "tk_c_3"), ("../pi", "tk_a_1")):
        relay.notes.clear()
        dialled = dial(name, token)
        relay.noted("was refused: its key or its name is none")
        assert dialled.wait(10) is not None


def test_a_name_stays_with_its_key(relay: Running, dial: Dial) -> None:
    dial("nano")
    relay.noted("nano is there")
    dial("nano", token="tk_b_2")
    relay.noted("a second nano was refused")
    dial("nano")  # its own key: the connection before may be dead
    deadline = time.monotonic() + 10
    while sum("nano is there" in note for note in relay.notes) < 2:
        assert time.monotonic() < deadline, relay.notes
        time.sleep(0.01)
    relay.revoked.add("tk_a_1")
    try:
        with pytest.raises(DeviceError, match="no device called 'nano' has dialled in"):
            reach("nano", relay.path)
    finally:
        relay.revoked.clear()
    relay.noted("nano is let go: its key was revoked or has expired")


def test_a_device_that_is_gone_is_not_handed_out(relay: Running, dial: Dial) -> None:
    dialled = dial("brief")
    relay.noted("brief is there")
    os.killpg(dialled.pid, 9)
    relay.noted("brief is gone")
    with pytest.raises(DeviceError, match="no device called 'brief'"):
        reach("brief", relay.path)
    with pytest.raises(DeviceError, match="no relay answers"):
        reach("brief", relay.folder / "nowhere")


def test_what_is_no_greeting_ends(relay: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "GREETING_S", 0.3)
    context = ssl.create_default_context(cafile=str(relay.folder / "cert.pem"))
    for said in (b"x" * (1 << 18), b"tk_a_1", b"\xff\xfe\n", b"tk_a_1 a b\n", b"\n"):
        with (
            socket.create_connection(("127.0.0.1", relay.port)) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            secured.settimeout(10)
            with suppress(OSError):
                secured.sendall(said)
                assert secured.recv(1) == b""
    with socket.create_connection(("127.0.0.1", relay.port)) as plain:
        plain.settimeout(10)
        plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with suppress(OSError):
            assert len(plain.recv(64)) < 64
