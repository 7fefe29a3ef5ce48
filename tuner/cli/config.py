"""`tuner config show`: the effective settings and where each came from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.invocation import Invocation


def show(
    context: typer.Context,
    origin: Annotated[
        bool, typer.Option("--origin", help="say where each value comes from")
    ] = False,
) -> None:
    """Shows each setting's value, and with --origin whether a flag, the environment, a
    file or the built-in gave it."""
    invocation = Invocation.of(context)
    loaded = invocation.settings()
    values = loaded.values.model_dump() | {
        "token": "set" if loaded.values.token.get_secret_value() else ""
    }
    if invocation.output.as_json:
        plain = {
            name: str(value) if isinstance(value, Path) else value for name, value in values.items()
        }
        invocation.output.document(
            {
                "settings": [
                    {"name": name, "value": value, "origin": loaded.origins[name]}
                    for name, value in plain.items()
                ],
                "files": [str(path) for path in loaded.files],
            }
        )
        return
    columns = ("setting", "value", "origin") if origin else ("setting", "value")
    rows = [
        (name, str(value), loaded.origins[name])[: len(columns)] for name, value in values.items()
    ]
    invocation.output.table(columns, rows)


def config() -> typer.Typer:
    """The commands of `tuner config`."""
    group = typer.Typer(no_args_is_help=True, help="Settings.")
    group.command("show")(show)
    return group
