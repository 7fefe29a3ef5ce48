"""Ray, started for the command that needs it and stopped with it: local, quiet, on loopback only and with its own token.

Used inside the driver process (driver.py) alone, in the directory and environment of session.py.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil
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


def pin(cores: Sequence[int]) -> None:
    """Keeps this process and all that descends from it off every other core, thread by thread; what is pinned to fewer stays so.

    Done once the fleet answers, so that Ray starts with all cores. What its processes start later inherits it.
    """
    allowed = set(cores)
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            for thread in process.threads():
                now = os.sched_getaffinity(thread.id)
                if not now <= allowed:
                    os.sched_setaffinity(thread.id, now & allowed or allowed)


def stop() -> None:
    with suppress(ConnectionError, OSError):
        ray.shutdown()
