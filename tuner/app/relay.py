"""The relay of devices that dial out, with the service's keys."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from tuner.db import keys
from tuner.db.engine import Database, open_database
from tuner.errors import UsageError
from tuner.measure.device.reach import reach
from tuner.measure.device.relay import SOCKET_BYTES, Relay
from tuner.settings import Settings

SCOPE = "worker"  # of keys that bring devices
SOCKET = "agents.sock"  # in the data directory


def serve_relay(
    settings: Settings,
    *,
    host: str,
    port: int,
    certificate: Path,
    certificate_key: Path,
    path: Path | None = None,
    note: Callable[[str], object],
) -> None:
    """Takes devices by TLS and hands them to hosts of this machine, until interrupted.

    `path` is the socket for hosts, by itself one in the data directory.
    Raises UsageError for a certificate that cannot be read, an address that is taken, a path
    where something other than a socket lies, and where another relay runs with the same data.
    """
    context, path = _context(certificate, certificate_key), _free(_socket(settings, path))
    database = open_database(settings.db)

    def listening(number: int) -> None:
        note(
            f"devices dial port {number}; a host reaches one by --device 'tuner agent reach "
            f"NAME --socket {path}'"
        )

    relay = Relay(lambda token: _admitted(database, token), note)
    before = os.umask(0o177)  # the socket is its owner's alone
    try:
        asyncio.run(relay.serve(host=host, port=port, context=context, path=path, ready=listening))
    except (OSError, UnicodeError) as error:
        raise UsageError(f"cannot listen at {host}:{port}: {error}") from error
    finally:
        os.umask(before)
        database.close()


def reach_device(settings: Settings, name: str, path: Path | None = None) -> None:
    """Has this process's standard streams be a device's. Raises DeviceError, UsageError."""
    reach(name, _socket(settings, path))


def _admitted(database: Database, token: str) -> str | None:
    """The id of a key of scope `worker` that holds good."""
    with database.read() as session:
        key = keys.authenticate(session, token)
    return None if key is None or SCOPE not in key.scopes else key.id


def _context(certificate: Path, certificate_key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, certificate_key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"{certificate} and {certificate_key} are no certificate and its key: {error}"
        ) from error
    return context


def _socket(settings: Settings, given: Path | None) -> Path:
    path = (given or settings.data_dir / SOCKET).absolute()
    if len(os.fsencode(path)) > SOCKET_BYTES:
        raise UsageError(
            f"{path} has more than {SOCKET_BYTES} bytes, which a socket may have; give a "
            f"shorter one by --socket"
        )
    return path


def _free(path: Path) -> Path:
    """The path, where no relay listens; what an ended one left is removed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_socket():
            raise UsageError(f"{path} is no socket and stays; give another path by --socket")
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(path)) == 0:
                raise UsageError(f"another relay listens at {path}; one serves all devices")
        path.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"no socket can be made at {path}: {error.strerror}; give another path by --socket"
        ) from error
    return path
