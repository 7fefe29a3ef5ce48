"""`tuner db`: the schema of the database, checked and brought up to date."""

from __future__ import annotations

import typer

from tuner.cli.exits import Exit
from tuner.cli.invocation import Invocation


def upgrade(context: typer.Context) -> None:
    """Brings the database's schema to this program's version, in one transaction; makes a missing database."""
    from db import schema
    from db.engine import open_database

    invocation = Invocation.of(context)
    opened = open_database(invocation.settings().values.db, check_schema=False)
    try:
        before, after = schema.upgrade(opened.engine)
        url = opened.url
    finally:
        opened.close()
    if invocation.output.as_json:
        invocation.output.document({"database": url, "before": before, "after": after})
    elif before == after:
        invocation.output.line(f"{url}: is at schema {after}")
    else:
        invocation.output.line(f"{url}: upgraded from schema {before or 'none'} to {after}")


def check(context: typer.Context) -> None:
    """Checks schema and integrity of the database; exit code 1 when something is wrong."""
    from db import schema
    from db.engine import open_database

    invocation = Invocation.of(context)
    opened = open_database(invocation.settings().values.db, create=False, check_schema=False)
    try:
        opened.ping()
        found, needed, url, problems = schema.current(opened.engine), schema.head(), opened.url, schema.check(opened.engine)
    finally:
        opened.close()
    if invocation.output.as_json:
        invocation.output.document({"database": url, "schema": found, "needed": needed, "problems": problems, "ok": not problems})
    else:
        invocation.output.line(f"{url}: schema {found or 'none'}, this program needs {needed}")
        for problem in problems or ["sound"]:
            invocation.output.line(problem)
    if problems:
        raise typer.Exit(Exit.FAILED)


def database() -> typer.Typer:
    group = typer.Typer(no_args_is_help=True, help="The database's schema.")
    group.command("upgrade")(upgrade)
    group.command("check")(check)
    return group
