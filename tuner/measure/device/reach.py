"""A host's end of the relay: a device's stream as this process's standard streams."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from pathlib import Path

from tuner.measure.device.connection import DeviceError
from tuner.measure.device.relay import CHUNK, FOUND, WAIT_S

ANSWER_S = WAIT_S + 5.0


def reach(name: str, path: Path, *, source: int = 0, sink: int = 1) -> None:
    """Carries bytes between two descriptors and the device, until the device ends.

    Raises DeviceError where there is no relay, and for a device that has not dialled in.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_S)
        try:
            connection.connect(str(path))
            connection.sendall(f"{name}\n".encode())
            answer = connection.recv(len(FOUND))
        except (OSError, ValueError) as error:
            raise DeviceError(
                f"no relay answers at {path}: {error}; start one: tuner agent relay"
            ) from error
        if answer != FOUND:
            raise DeviceError(f"no device called {name!r} has dialled in")
        connection.settimeout(None)
        forwards = threading.Thread(target=_forwards, args=(source, connection), daemon=True)
        forwards.start()
        with suppress(OSError):
            while data := connection.recv(CHUNK):
                while data:
                    data = data[os.write(sink, data) :]


def _forwards(source: int, connection: socket.socket) -> None:
    with suppress(OSError):
        while data := os.read(source, CHUNK):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
