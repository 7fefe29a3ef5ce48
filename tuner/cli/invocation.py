"""One call of the program: its output, its global flags, and what they lead to.

Settings, database or service are opened when a command needs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from tuner.cli.output import Output
from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.cli.backend.roles import Backend, Fleet
    from tuner.db.engine import Database
    from tuner.settings import LoadedSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """What the command of one call works with."""

    output: Output
    command: str = "tuner"  # as it was called, such as "tuner bench"
    db: str | None = None  # as given by --db
    server: str | None = None  # as given by --server

    @classmethod
    def of(cls, context: typer.Context) -> Invocation:
        """The invocation of a command that works here or on a service."""
        root = context.find_object(cls)
        assert root is not None, "the root callback makes the invocation before any command runs"
        return cls(output=root.output, command=context.command_path, db=root.db, server=root.server)

    @classmethod
    def here(cls, context: typer.Context) -> Invocation:
        """The invocation of a command that is about this machine.

        Raises UsageError if --server was given.
        """
        invocation = cls.of(context)
        if invocation.server:
            raise UsageError(
                f"{invocation.command} works on this machine and cannot be sent to "
                f"{invocation.server}; leave out --server"
            )
        return invocation

    def settings(self, **flags: Any) -> LoadedSettings:
        """The effective settings. A flag that is None was not given."""
        from tuner.settings import load_settings

        if self.db is not None and self.server is not None:
            raise UsageError(
                f"--db {self.db} and --server {self.server} were given; a command works on one "
                f"of the two"
            )
        # --db takes precedence over a service named by the environment or a file.
        server = "" if self.db is not None else self.server
        return load_settings({"db": self.db, "server": server, **flags})

    @contextmanager
    def backend(self, *, create: bool = False, **flags: Any) -> Iterator[Backend]:
        """The service that the settings name; else the database.

        A missing database is made as `database` does.
        """
        loaded = self.settings(**flags)
        if loaded.values.server:
            from tuner.cli.backend.remote import remote_backend

            with remote_backend(loaded) as backend:
                yield backend
            return
        from tuner.cli.backend.local import local_backend

        with local_backend(loaded.values, create=create or _may_be_made(loaded)) as backend:
            yield backend

    @contextmanager
    def fleet(self, **flags: Any) -> Iterator[Fleet]:
        """The fleet of the service that the settings name; else that of the database.

        The database is opened only when it is needed.
        """
        loaded = self.settings(**flags)
        if loaded.values.server:
            from tuner.cli.backend.remote import RemoteFleet, connected

            with connected(loaded.values) as client:
                yield RemoteFleet(client, loaded)
            return
        from tuner.cli.backend.fleet import LocalFleet

        yield LocalFleet(loaded.values, self.database)

    @contextmanager
    def database(self, *, create: bool = False) -> Iterator[Database]:
        """The database that the settings name.

        A missing one is made with `create`, or if it is the built-in default. Raises
        UsageError where the settings name a service.
        """
        from tuner.db.engine import open_database

        loaded = self.database_settings()
        opened = open_database(loaded.values.db, create=create or _may_be_made(loaded))
        try:
            yield opened
        finally:
            opened.close()

    def database_settings(self) -> LoadedSettings:
        """The settings of a command that needs the database itself.

        Raises UsageError where they name a service.
        """
        loaded = self.settings()
        if loaded.values.server:
            where = f"{loaded.values.server} ({loaded.origins['server']})"
            way_out = "leave out --server" if self.server else "name the database with --db"
            raise UsageError(
                f"{self.command} needs the database itself and cannot be sent to the service "
                f"{where}; {way_out}"
            )
        return loaded


def _may_be_made(loaded: LoadedSettings) -> bool:
    """Whether a missing database is made: if it is the built-in default."""
    from tuner.settings import BUILT_IN

    return loaded.origins["db"] == BUILT_IN
