"""`tuner serve`: the API in this process, an orchestrator with local workers in another; they meet in the database."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from api.options import ServiceOptions
from api.server import serve
from db.engine import open_database
from tuner.app.machine import checked_target, with_limits
from tuner.settings import ENVIRONMENT_PREFIX, Settings

STOP_S = 30.0  # for the orchestrator to give its job back and end its workers


def serve_here(settings: Settings, *, started: Callable[[str], None]) -> None:
    """Serves until SIGINT or SIGTERM. `started` gets the URL.

    Raises UsageError for auth 'off' beyond loopback, AddressInUse, DatabaseError.
    """
    target = checked_target(settings)
    options = ServiceOptions(
        database_url=settings.db,
        artifacts=settings.artifacts,
        auth=settings.auth,
        host=settings.host,
        port=settings.port,
        target=target,
    )
    database = open_database(settings.db)
    try:
        with_limits(database, target)
    finally:
        database.close()
    with _orchestrator(settings):
        serve(options, started=started)


@contextmanager
def _orchestrator(settings: Settings) -> Iterator[None]:
    """The process lives as long as the block, and not longer than this process."""
    said = settings.model_dump(exclude={"server", "token"})  # those are for commands that ask a service
    given = {ENVIRONMENT_PREFIX + name.upper(): str(value) for name, value in said.items() if value != ""}
    environment = dict(os.environ) | given
    command = [sys.executable, "-P", "-m", "tuner.app.orchestrate"]
    # A session of its own: Ctrl-C reaches it through this process alone, in good order.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, start_new_session=True)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
