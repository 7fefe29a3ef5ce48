"""Boards that dial out: a certificate of localhost, and the script of docs/how-to/devices.md."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

DIAL = """
rm -f pipe && mkfifo pipe
{{ echo "{token} {name}"; exec {agent} <pipe; }} |
  openssl s_client -quiet -verify_return_error -verify_hostname localhost -CAfile {ca} \
    -connect localhost:{port} >pipe
"""
AGAIN = "while :; do {script} sleep 0.2; done"


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of localhost and its key. Skips the test where there is no OpenSSL."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    return folder / "cert.pem", folder / "key.pem"


def board(
    folder: Path, *, name: str, token: str, agent: str, ca: Path, port: int, again: bool = False
) -> subprocess.Popen[bytes]:
    """A board's script in a folder of its own, a session that one signal ends."""
    folder.mkdir()
    script = DIAL.format(token=token, name=name, agent=agent, ca=ca, port=port)
    return subprocess.Popen(
        ["sh", "-c", AGAIN.format(script=script) if again else script],
        cwd=folder,
        stderr=subprocess.PIPE if not again else subprocess.DEVNULL,
        start_new_session=True,
    )
