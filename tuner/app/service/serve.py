"""`tuner serve`: the API in this process, an orchestrator with workers in another.

The two communicate through the database.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

from tuner.api.options import GIB, ServiceOptions
from tuner.api.server import serve
from tuner.app.devices import device_lanes
from tuner.app.machine import checked_target, with_limits
from tuner.app.service.kept import kept
from tuner.db.engine import open_database
from tuner.models.importer import LARGEST_FILE, available
from tuner.settings import ENVIRONMENT_PREFIX, Settings


def serve_here(settings: Settings, *, started: Callable[[str], None]) -> None:
    """Serves until SIGINT or SIGTERM. `started` gets the URL.

    Raises UsageError for auth 'off' beyond loopback, AddressInUse, DatabaseError.
    """
    target = checked_target(settings, on_devices=True)
    devices = device_lanes(settings, target)
    options = ServiceOptions(
        database_url=settings.db,
        artifacts=settings.artifacts,
        auth=settings.auth,
        candidates=settings.candidates,
        host=settings.host,
        port=settings.port,
        target=target,
        models=available(),
        max_model_bytes=min(round(settings.model_gib * GIB), LARGEST_FILE),
    )
    database = open_database(settings.db)
    try:
        with_limits(database, target, devices)
    finally:
        database.close()
    with _orchestrator(settings):
        serve(options, started=started)


def _orchestrator(settings: Settings) -> AbstractContextManager[None]:
    """Keeps the orchestrator's process running, so that jobs go on after it was killed."""
    variables = as_variables(settings)
    command = [sys.executable, "-P", "-m", "tuner.app.service.orchestrate"]
    return kept(command, environment=dict(os.environ) | variables, name="orchestrator")


def as_variables(settings: Settings) -> dict[str, str]:
    """The environment from which a child reads the same settings."""
    # `server` and `token` are for commands that ask a service.
    values = settings.model_dump(exclude={"server", "token"})
    return {
        ENVIRONMENT_PREFIX + name.upper(): str(value)
        for name, value in values.items()
        if value not in ("", None)
    }
