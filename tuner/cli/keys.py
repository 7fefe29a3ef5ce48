"""`tuner keys`: the keys of a service.

A token is shown once, when its key is made. Only its digest is stored.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner import units
from tuner.cli.invocation import Invocation

if TYPE_CHECKING:
    from tuner.db.keys import ApiKey


def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="whose key it is, for people")],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            help="read, submit, submit:source, admin or worker; may be given several times",
        ),
    ] = None,
    quota: Annotated[
        int | None, typer.Option("--quota", metavar="N", min=1, help="unfinished jobs at a time")
    ] = None,
    days: Annotated[
        int | None,
        typer.Option("--days", metavar="N", min=1, max=36500, help="how long it is valid"),
    ] = None,
) -> None:
    """Makes a key and prints its token, which cannot be read back later. Without
    --scope it may read and submit."""
    from tuner.db import keys

    invocation = Invocation.of(context)
    expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
    with invocation.database() as database, database.write() as session:
        key, token = keys.create(
            session,
            name=name,
            scopes=scope or ("read", "submit"),
            quota=quota,
            expires_at=expires_at,
        )
    if invocation.output.as_json:
        invocation.output.document({**_document(key), "token": token})
    else:
        invocation.output.line(token)
        invocation.output.note(
            f"key {key.id} of {key.name} may {', '.join(sorted(key.scopes))}; the token is not "
            f"shown again"
        )


def list_keys(context: typer.Context) -> None:
    """Lists the keys, revoked ones too, without their tokens."""
    from tuner.db import keys

    invocation = Invocation.of(context)
    with invocation.database() as database, database.read() as session:
        listed = keys.list_all(session)
    if invocation.output.as_json:
        invocation.output.items([_document(key) for key in listed])
        return
    rows = [
        (
            key.id,
            key.name,
            ", ".join(sorted(key.scopes)),
            units.local_day(key.created_at),
            units.local_day(key.expires_at),
            units.local_day(key.revoked_at),
            units.local_day(key.last_used_at),
        )
        for key in listed
    ]
    invocation.output.table(
        ("key", "name", "scopes", "created", "expires", "revoked", "last used"), rows
    )


def revoke(
    context: typer.Context, key: Annotated[str, typer.Argument(metavar="KEY", help="the key's id")]
) -> None:
    """Ends a key at once."""
    from tuner.db import keys

    invocation = Invocation.of(context)
    with invocation.database() as database, database.write() as session:
        revoked = keys.revoke(session, key)
    if invocation.output.as_json:
        invocation.output.document(_document(revoked))
    else:
        invocation.output.line(f"key {revoked.id} of {revoked.name} is revoked")


def keys() -> typer.Typer:
    """The commands of `tuner keys`."""
    group = typer.Typer(no_args_is_help=True, help="Who may use the service.")
    group.command("create")(create)
    group.command("list")(list_keys)
    group.command("revoke")(revoke)
    return group


def _document(key: ApiKey) -> dict[str, Any]:
    moments = {
        name: getattr(key, name)
        for name in ("created_at", "expires_at", "revoked_at", "last_used_at")
    }
    return {
        "id": key.id,
        "name": key.name,
        "scopes": sorted(key.scopes),
        "quota": key.quota,
        **{
            name: None if moment is None else moment.isoformat() for name, moment in moments.items()
        },
    }
