"""Serving without keys is only possible where nobody else can reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.api.options import ServiceOptions, is_loopback
from tuner.errors import UsageError


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.3.2.1", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example", False),
        ("", False),
    ],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_auth_off_beyond_loopback_is_refused_with_the_way_out() -> None:
    with pytest.raises(UsageError, match=r"0\.0\.0\.0.*tuner keys create"):
        ServiceOptions(database_url="sqlite:///x", artifacts=Path("x"), auth="off", host="0.0.0.0")
    ServiceOptions(database_url="sqlite:///x", artifacts=Path("x"), auth="off")
