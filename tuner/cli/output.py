"""A command's output: the result on standard output, everything else on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPE_WIDTH = 240  # columns of a table that goes to a pipe or file, so that no cell is cut


def _console(*, stderr: bool) -> Console:
    """A console on standard output or error. Colours follow the terminal and NO_COLOR."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(
        stderr=stderr,
        width=None if stream.isatty() else PIPE_WIDTH,
        highlight=False,
        soft_wrap=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where one command writes."""

    as_json: bool = False
    quiet: bool = False  # no notes on standard error; warnings and errors stay
    stdout: Console = field(default_factory=lambda: _console(stderr=False))
    stderr: Console = field(default_factory=lambda: _console(stderr=True))

    def document(self, document: Mapping[str, Any]) -> None:
        """Writes the one JSON document of a command with --json.

        Raises ValueError for nan and infinity, which JSON does not have.
        """
        sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")
        sys.stdout.flush()

    def items(self, items: Sequence[Mapping[str, Any]]) -> None:
        """Writes a whole list, as --json prints it."""
        self.document({"items": list(items), "next": None})

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()
    ) -> None:
        """Writes a table. `right` names the columns that hold numbers."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(
                column, justify="right" if column in right else "left", overflow="fold"
            )
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        self.stdout.print(table)

    def line(self, text: str = "") -> None:
        """Writes a line of the result, for people."""
        self.stdout.print(Text(text), soft_wrap=True)

    def note(self, text: str) -> None:
        """Writes a line to standard error, unless --quiet was given."""
        if not self.quiet:
            self.stderr.print(Text(text), soft_wrap=True)

    def warning(self, text: str) -> None:
        """Writes a warning to standard error, also with --quiet."""
        self.stderr.print(Text.assemble(("warning: ", "yellow"), text), soft_wrap=True)
