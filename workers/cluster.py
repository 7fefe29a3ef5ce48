"""Ray, started for the command that needs it and stopped with it: local, quiet, on loopback only and with its own token.

Used inside the driver process (driver.py) alone, in the directory and environment of session.py.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

import ray

OBJECT_STORE_BYTES = 80 * 2**20  # about the least Ray accepts; payloads travel as files


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
