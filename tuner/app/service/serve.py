"""`tuner serve`: the API in this process, an orchestrator with local workers in
another; they meet in the database."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

from tuner.api.options import ServiceOptions
from tuner.api.server import serve
from tuner.app.machine import checked_target, with_limits
from tuner.app.service.kept import kept
from tuner.db.engine import open_database
from tuner.models.importer import available
from tuner.settings import ENVIRONMENT_PREFIX, Settings


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
        models=available(),
    )
    database = open_database(settings.db)
    try:
        with_limits(database, target)
    finally:
        database.close()
    with _orchestrator(settings):
        serve(options, started=started)


def _orchestrator(settings: Settings) -> AbstractContextManager[None]:
    """Its process is kept for the block: jobs must not wait for ever because it was killed."""
    said = settings.model_dump(
        exclude={"server", "token"}
    )  # those are for commands that ask a service
    given = {
        ENVIRONMENT_PREFIX + name.upper(): str(value) for name, value in said.items() if value != ""
    }
    command = [sys.executable, "-P", "-m", "tuner.app.service.orchestrate"]
    return kept(command, environment=dict(os.environ) | given, name="orchestrator")
