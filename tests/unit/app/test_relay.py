"""The relay's socket: what lies at its path already."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.support.dialling_boards import certificate
from tuner.app.relay import serve_relay
from tuner.errors import UsageError
from tuner.settings import load_settings


def refused(folder: Path, path: Path) -> str:
    """Why no relay starts there."""
    cert, key = certificate(folder)
    settings = load_settings({"data_dir": folder}).values
    with pytest.raises(UsageError) as raised:
        serve_relay(
            settings,
            host="127.0.0.1",
            port=0,
            certificate=cert,
            certificate_key=key,
            path=path,
            note=lambda text: None,
        )
    return str(raised.value)


def test_a_file_at_its_path_stays(tmp_path: Path) -> None:
    precious = tmp_path / "notes.txt"
    precious.write_text("kept")
    assert "is no socket and stays" in refused(tmp_path, precious)
    assert precious.read_text() == "kept"
    assert "is no socket and stays" in refused(tmp_path, tmp_path)
    assert "no socket can be made" in refused(tmp_path, precious / "s")


def test_a_second_relay_is_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        assert "another relay listens" in refused(tmp_path, tmp_path / "s")
    assert (tmp_path / "s").exists()
