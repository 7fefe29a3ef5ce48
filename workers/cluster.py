"""Ray, started for the command that needs it and stopped with it: local, quiet, reachable from this machine only and with its own token.

Used inside the driver process (driver.py) alone. A session directory holds all that Ray and the workers write; its `empty` folder is
the driver's working directory, because Ray puts that directory on its workers' path and a stray `db.py` there would be imported.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import ray

from workers.channel import source_root

OBJECT_STORE_BYTES = 80 * 2**20  # about the least Ray accepts; payloads travel as files
LONGEST_PATH = 40  # of the session directory: Ray's sockets lie below it and may have 107 characters


def make_session() -> Path:
    """A new private directory: `empty`, `build`, `token`."""
    base = tempfile.gettempdir()
    session = Path(tempfile.mkdtemp(prefix="tuner-", dir=base if len(base) < LONGEST_PATH - 16 else "/tmp"))
    (session / "empty").mkdir()
    (session / "build").mkdir()
    token = session / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32), encoding="ascii")
    return session


def remove_session(session: Path) -> None:
    shutil.rmtree(session, ignore_errors=True)


def driver_environment(session: Path, *, local: bool) -> dict[str, str]:
    """The environment of the driver process. Ray reads most of these when it is imported, so they cannot be set later.

    For an existing cluster its token is the operator's business (`RAY_AUTH_TOKEN` or `RAY_AUTH_TOKEN_PATH` as they are).
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TUNER_")}
    environment |= {
        "PYTHONPATH": str(source_root()),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_enable_metrics_collection": "0",
        "RAY_DEDUP_LOGS": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    if local:
        environment.pop("RAY_AUTH_TOKEN", None)
        environment.pop("RAY_ADDRESS", None)
        environment |= {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(session / "token"),
            # Off, Ray listens on 127.0.0.1 only; the name dates from when the others had no clusters.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        }
    return environment


def start(session: Path, *, cpus: int, address: str | None) -> None:
    """Starts a local Ray, which takes about 3 s, or joins the one at `address`."""
    common = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": "tuner"}
    if address is not None:
        ray.init(address=address, **common)
        return
    ray.init(
        address="local",
        include_dashboard=False,
        num_cpus=cpus,
        num_gpus=0,
        object_store_memory=OBJECT_STORE_BYTES,
        _temp_dir=str(session / "ray"),
        **common,
    )


def stop() -> None:
    with suppress(ConnectionError, OSError):
        ray.shutdown()
