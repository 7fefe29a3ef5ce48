"""`tuner agent`: the program by which a device measures kernels, and how it is reached."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.invocation import Invocation
from tuner.cli.workloads import DeviceCommands, TargetText, check_devices, device_setting

NAME = "tuner-agent"
Socket = Annotated[
    Path | None,
    typer.Option("--socket", metavar="PATH", help="of relay and hosts; by itself in data_dir"),
]


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


def relay(
    context: typer.Context,
    certificate: Annotated[
        Path, typer.Option("--cert", metavar="FILE", help="certificate in PEM, with its chain")
    ],
    certificate_key: Annotated[
        Path, typer.Option("--cert-key", metavar="FILE", help="the certificate's key in PEM")
    ],
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="to listen at; all unless given")
    ] = "",
    port: Annotated[int, typer.Option("--port", metavar="PORT", min=0, max=65535)] = 8443,
    path: Socket = None,
) -> None:
    """Takes devices that dial out by TLS with a key of scope worker, for tuner agent reach."""
    from tuner.app.relay import serve_relay

    invocation = Invocation.here(context)
    serve_relay(
        invocation.settings().values,
        host=host,
        port=port,
        certificate=certificate,
        certificate_key=certificate_key,
        path=path,
        note=invocation.output.note,
    )


def reach(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="that the device gave itself")],
    path: Socket = None,
) -> None:
    """Has standard input and output be the agent of a device that has dialled in, as
    --device 'tuner agent reach NAME' wants it."""
    from tuner.app.relay import reach_device

    reach_device(Invocation.here(context).settings().values, name, path)


def agent() -> typer.Typer:
    """The commands about agents."""
    group = typer.Typer(no_args_is_help=True, help="The program by which a device measures.")
    group.command()(build)
    group.command()(check)
    group.command()(relay)
    group.command()(reach)
    return group
