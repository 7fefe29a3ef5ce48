"""What all commands of one call share: its output and the global flags; settings and database are opened from it when needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from tuner.cli.output import Output

if TYPE_CHECKING:
    from db.engine import Database
    from tuner.settings import LoadedSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    output: Output
    db: str | None = None  # as given by --db

    @classmethod
    def of(cls, context: typer.Context) -> Invocation:
        found = context.find_object(cls)
        assert found is not None, "the root callback makes the invocation before any command runs"
        return found

    def settings(self, **flags: Any) -> LoadedSettings:
        """The effective settings under this command's flags (None is not given)."""
        from tuner.settings import load_settings

        return load_settings({"db": self.db, **flags})

    @contextmanager
    def database(self, *, create: bool = False) -> Iterator[Database]:
        """The database the settings name. A missing one is made with `create`, or where it is the built-in default."""
        from db.engine import open_database
        from tuner.settings import BUILT_IN

        loaded = self.settings()
        opened = open_database(loaded.values.db, create=create or loaded.origins["db"] == BUILT_IN)
        try:
            yield opened
        finally:
            opened.close()
