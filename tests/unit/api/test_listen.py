"""The service's address: free to connect to as soon as it is named, and a clear error
where somebody else has it."""

from __future__ import annotations

import socket

import pytest

from tuner.api.server import AddressInUse, listen


def test_who_is_told_the_address_can_connect_at_once() -> None:
    with (
        listen("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname(), timeout=5) as connection,
    ):
        assert connection.getpeername() == listener.getsockname()


def test_an_address_that_is_taken_is_an_error_before_anything_starts() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(AddressInUse, match=rf"cannot listen on 127\.0\.0\.1:{port}: .*--port"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize("host", ["x" * 70, "a..b", "no such host", "256.256.256.256"])
def test_a_name_that_no_host_has_is_the_same_error(host: str) -> None:
    with pytest.raises(AddressInUse, match=r"cannot listen on .*--host"):
        listen(host, 0)
