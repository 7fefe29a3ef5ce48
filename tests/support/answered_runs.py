"""Runs answered from the database by a function, as a worker answers them."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.live_service import LiveService, wait_for
from tuner.db import artifacts, runs


def work(
    service: LiveService, answer: Callable[[dict[str, NDArray[Any]]], dict[str, NDArray[Any]] | str]
) -> threading.Thread:
    """Serves the next run from the database, as a worker does."""

    def serve() -> None:
        claimed: list[runs.Run] = []

        def claim() -> bool:
            with service.database.write() as session:
                run = runs.claim_next(session, owner="worker", lifetime=timedelta(seconds=30))
            claimed.extend([run] if run is not None else [])
            return run is not None

        wait_for(claim)
        with np.load(io.BytesIO(service.store.get(claimed[0].input)), allow_pickle=False) as arrays:
            result = answer({name: arrays[name] for name in arrays.files})
        with service.database.write() as session:
            if isinstance(result, str):
                runs.finish(session, claimed[0].id, claimed[0].fence, error=result)
                return
            buffer = io.BytesIO()
            np.savez(buffer, allow_pickle=False, **result)
            digest = service.store.put(buffer.getvalue())
            artifacts.remember(
                session, sha256=digest, size_bytes=len(buffer.getvalue()), kind="output"
            )
            runs.finish(session, claimed[0].id, claimed[0].fence, output=digest)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread
