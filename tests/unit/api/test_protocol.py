"""Connections that say nothing, or a byte now and then: they are closed, others are not."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import uvicorn
from fastapi import FastAPI

from tuner.api.protocol import Protocol

PATIENCE_S, ANSWER_S = 0.2, 0.3
REQUEST = b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    app = FastAPI()

    @app.get("/slow")
    def slow() -> None:
        time.sleep(ANSWER_S)

    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, http=Protocol, log_config=None, lifespan="off")
    config.timeout_keep_alive = PATIENCE_S  # type: ignore[assignment]  # it takes fractions as well
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        listener.close()


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        yield client


def is_answered(client: socket.socket, times: int = 1) -> bool:
    """Whether so many answers come. Their heads and bodies may come apart."""
    answer = b""
    while answer.count(b"\r\n\r\nnull") < times:
        piece = client.recv(65_536)
        if not piece:
            return False
        answer += piece
    return answer.count(b"HTTP/1.1 200") == times


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_who_says_nothing_is_not_waited_for(port: int) -> None:
    with connected(port) as client:
        assert is_closed(client)


@pytest.mark.parametrize("before", [b"", REQUEST])
def test_a_head_that_does_not_end_is_not_waited_for(port: int, before: bytes) -> None:
    """Neither that of the first request nor that of a later one."""
    with connected(port) as client:
        client.sendall(before)
        if before:
            assert is_answered(client)
        with pytest.raises(ConnectionError):  # some byte is the first too late
            for byte in REQUEST * 3:
                client.sendall(bytes([byte | 0x20]))
                time.sleep(PATIENCE_S / 10)


def test_a_request_may_take_longer_and_another_may_follow(port: int) -> None:
    with connected(port) as client:
        for _ in range(2):
            client.sendall(REQUEST)
            assert is_answered(client)


def test_requests_sent_at_once_are_all_answered(port: int) -> None:
    with connected(port) as client:
        client.sendall(REQUEST * 2)
        assert is_answered(client, 2)
