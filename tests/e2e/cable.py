"""A loopback connection that can be cut and mended: what passes between a browser and a
server goes through it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class Cable:
    """Forwards connections to a port while it is whole; cutting it ends those that are open."""

    def __init__(self, port: int) -> None:
        self._target, self._whole, self._open = port, True, set[socket.socket]()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True, name="cable").start()

    def cut(self) -> None:
        with self._lock:
            self._whole = False
            ended, self._open = self._open, set()
        for end in ended:
            _end(end)

    def mend(self) -> None:
        with self._lock:
            self._whole = True

    def close(self) -> None:
        self.cut()
        _end(self._listener)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self._whole:
                _end(client)
                continue
            server = socket.create_connection(("127.0.0.1", self._target))
            with self._lock:
                self._open |= {client, server}
            for source, sink in ((client, server), (server, client)):
                threading.Thread(
                    target=self._forward, args=(source, sink), daemon=True, name="cable"
                ).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
        for end in (source, sink):
            _end(end)
            with self._lock:
                self._open.discard(end)


def _end(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


@contextlib.contextmanager
def cable(port: int) -> Iterator[Cable]:
    cable = Cable(port)
    try:
        yield cable
    finally:
        cable.close()
