"""`tuner db`: the database checked, brought up to date, backed up and restored."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.exits import Exit
from tuner.cli.invocation import Invocation
from tuner.errors import UsageError


def upgrade(context: typer.Context) -> None:
    """Brings the database's schema to this program's version, in one transaction; makes
    a missing database."""
    from tuner.db import schema
    from tuner.db.engine import open_database

    invocation = Invocation.of(context)
    opened = open_database(invocation.database_settings().values.db, check_schema=False)
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
    from tuner.db import schema
    from tuner.db.engine import open_database
    from tuner.db.errors import DatabaseDamaged

    invocation = Invocation.of(context)
    opened = open_database(
        invocation.database_settings().values.db, create=False, check_schema=False
    )
    url, needed = opened.url, schema.head()
    try:
        opened.ping()
        installed, problems = schema.current(opened.engine), schema.check(opened.engine)
    except DatabaseDamaged as error:
        installed, problems = None, [str(error)]
    finally:
        opened.close()
    if invocation.output.as_json:
        invocation.output.document(
            {
                "database": url,
                "schema": installed,
                "needed": needed,
                "problems": problems,
                "ok": not problems,
            }
        )
    else:
        invocation.output.line(f"{url}: schema {installed or 'none'}, this program needs {needed}")
        for problem in problems or ["sound"]:
            invocation.output.line(problem)
    if problems:
        raise typer.Exit(Exit.FAILED)


def backup(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="a new file")],
) -> None:
    """Writes a copy of the database while it is in use: an SQLite file, or an archive
    of pg_dump."""
    from tuner.db import backup as backups
    from tuner.db.engine import open_database

    invocation = Invocation.of(context)
    # An older schema can be backed up too: that is what comes before its upgrade.
    opened = open_database(
        invocation.database_settings().values.db, create=False, check_schema=False
    )
    try:
        written = backups.backup(opened, file)
    finally:
        opened.close()
    if invocation.output.as_json:
        invocation.output.document({"file": str(written), "size_bytes": written.stat().st_size})
    else:
        invocation.output.line(f"{written}: {written.stat().st_size:,} bytes")


def restore(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="a backup")],
) -> None:
    """Replaces everything in the database by a backup, in one transaction; stop all
    other programs that use it first."""
    from tuner.db import backup as backups

    invocation = Invocation.of(context)
    url = backups.restore_at(invocation.database_settings().values.db, file)
    if invocation.output.as_json:
        invocation.output.document({"database": url, "restored": str(file)})
    else:
        invocation.output.line(f"{url}: restored from {file}; tuner db check looks it over")


def prune(
    context: typer.Context,
    days: Annotated[
        int | None,
        typer.Option(
            "--days", metavar="N", help="keep what ended, of timelines what began, within N days"
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option("--trials", metavar="N", help="keep so many trials, of the newest jobs"),
    ] = None,
    events: Annotated[
        int | None,
        typer.Option("--events", metavar="N", help="keep so many events, of the newest jobs"),
    ] = None,
) -> None:
    """Deletes trials and events of jobs that ended, and by age runs and timelines; jobs
    and kernels with their trials stay."""
    from tuner.app.jobs.retention import kept_by
    from tuner.app.jobs.retention import prune as run
    from tuner.export.artifacts import ArtifactStore

    invocation = Invocation.of(context)
    settings = invocation.settings(keep_days=days, keep_trials=trials, keep_events=events).values
    keep = kept_by(settings)
    if keep.everything:
        raise UsageError(
            "nothing says what may go; give --days, --trials or --events, or the settings "
            "keep_days, keep_trials, …"
        )
    with invocation.database() as opened:
        pruned = run(opened, keep, ArtifactStore(settings.artifacts))
    if invocation.output.as_json:
        counts = {
            "jobs": pruned.jobs,
            "trials": pruned.trials,
            "events": pruned.events,
            "idempotency_keys": pruned.keys,
        }
        counts |= {"runs": pruned.runs, "spans": pruned.spans, "sources": pruned.sources}
        invocation.output.document(counts)
    else:
        of_jobs = (
            f"{pruned.trials:,} trials and {pruned.events:,} events of {pruned.jobs:,} "
            f"jobs are deleted"
        )
        invocation.output.line(
            f"{of_jobs}, {pruned.runs:,} runs, {pruned.spans:,} spans of lanes and "
            f"{pruned.sources:,} sources"
        )


def database() -> typer.Typer:
    """The commands of `tuner db`."""
    group = typer.Typer(
        no_args_is_help=True, help="The database: schema, integrity, backups, what is kept."
    )
    group.command("upgrade")(upgrade)
    group.command("check")(check)
    group.command("backup")(backup)
    group.command("restore")(restore)
    group.command("prune")(prune)
    return group
