"""What all commands of one call share: its output and the global flags; settings,
database or service are opened when needed."""

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
    output: Output
    command: str = "tuner"  # as it was called, such as "tuner bench"
    db: str | None = None  # as given by --db
    server: str | None = None  # as given by --server

    @classmethod
    def of(cls, context: typer.Context) -> Invocation:
        root = context.find_object(cls)
        assert root is not None, "the root callback makes the invocation before any command runs"
        return cls(output=root.output, command=context.command_path, db=root.db, server=root.server)

    @classmethod
    def here(cls, context: typer.Context) -> Invocation:
        """For a command that is about this machine by its nature. Raises UsageError
        where --server was given with it."""
        invocation = cls.of(context)
        if invocation.server:
            raise UsageError(
                f"{invocation.command} works on this machine and cannot be sent to "
                f"{invocation.server}; leave out --server"
            )
        return invocation

    def settings(self, **flags: Any) -> LoadedSettings:
        """The effective settings under this command's flags (None is not given)."""
        from tuner.settings import load_settings

        if self.db is not None and self.server is not None:
            raise UsageError(
                f"--db {self.db} and --server {self.server} were given; a command works on one "
                f"of the two"
            )
        # --db is nearer than a service named by the environment or a file.
        server = "" if self.db is not None else self.server
        return load_settings({"db": self.db, "server": server, **flags})

    @contextmanager
    def backend(self, *, create: bool = False, **flags: Any) -> Iterator[Backend]:
        """The service that the settings name, else the database. A missing one is made
        as by `database`."""
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
        """The fleet of the service that the settings name, else of the database; that
        is opened only for what needs it."""
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
        """The database the settings name. A missing one is made with `create`, or where
        it is the built-in default.

        Raises UsageError where the settings name a service: this command needs the database itself.
        """
        from tuner.db.engine import open_database

        loaded = self.database_settings()
        opened = open_database(loaded.values.db, create=create or _may_be_made(loaded))
        try:
            yield opened
        finally:
            opened.close()

    def database_settings(self) -> LoadedSettings:
        """The settings of a command that works on the database itself. Raises
        UsageError where they name a service."""
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
    from tuner.settings import BUILT_IN

    return loaded.origins["db"] == BUILT_IN
