"""`tuner agent`: the program by which a device measures kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.invocation import Invocation
from tuner.cli.workloads import DeviceCommands, TargetText, check_devices, device_setting

NAME = "tuner-agent"


def build(
    context: typer.Context,
    target: TargetText = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="the program")
    ] = Path(NAME),
) -> None:
    """Compiles the agent for the machines of a declared CPU, to be copied to one."""
    from tuner.app.devices import build_agent

    invocation = Invocation.here(context)
    settings = invocation.settings(target=target).values
    written = build_agent(settings, output)
    if invocation.output.as_json:
        invocation.output.document(
            {"program": str(output), "bytes": written, "target": settings.target}
        )
        return
    invocation.output.line(f"{output}: {written:,} bytes, for {settings.target}")


def check(context: typer.Context, target: TargetText = None, device: DeviceCommands = None) -> None:
    """Asks devices whether they are the declared CPU, and what fences candidates have
    there."""
    from tuner.app.devices import findings

    invocation = Invocation.here(context)
    settings = invocation.settings(target=target, device=device_setting(device)).values
    check_devices(device, settings.target)
    items = findings(settings)
    if invocation.output.as_json:
        invocation.output.items(items)
        return
    for item in items:
        invocation.output.line(
            f"{item['lane']}: {item['architecture']}, {item['cores']} cores; candidates run "
            f"{item['isolation']}"
        )


def agent() -> typer.Typer:
    """The commands about agents."""
    group = typer.Typer(no_args_is_help=True, help="The program by which a device measures.")
    group.command()(build)
    group.command()(check)
    return group
