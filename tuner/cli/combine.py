"""`tuner combine`: exports for several architectures in one directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.invocation import Invocation


def combine(
    context: typer.Context,
    exports: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="what tuner export or tuner tune -o wrote"),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="where to; new or empty")
    ],
) -> None:
    """Puts exported libraries of one name, for several architectures, into one directory."""
    from tuner.export.combined import combine as combined_exports

    invocation = Invocation.here(context)
    made = combined_exports(exports, output)
    if invocation.output.as_json:
        invocation.output.document(
            {
                "directory": str(output),
                "name": made.name,
                "architectures": list(made.architectures),
                "files": made.files,
            }
        )
        return
    invocation.output.line(
        f"{output}: {made.name} for {', '.join(made.architectures)}, {made.files} files"
    )
