"""`tuner serve`: the REST service with local workers."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli.invocation import Invocation
from tuner.cli.workloads import DeviceCommands, check_devices, device_setting


def serve(
    context: typer.Context,
    host: Annotated[
        str | None, typer.Option("--host", metavar="ADDRESS", help="address to listen on")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="N", help="port to listen on; 0 takes a free one"),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            metavar="HOST:PORT",
            help="use the workers of this Ray cluster, not local ones",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="TARGET",
            help="whose jobs it runs: cpu, or cuda for this machine's GPUs",
        ),
    ] = None,
    device: DeviceCommands = None,
    auth: Annotated[
        str | None,
        typer.Option(
            "--auth", metavar="on|off", help="off needs no key, on a loopback address only"
        ),
    ] = None,
) -> None:
    """Serves the API, with an orchestrator and workers on this machine or of a cluster,
    until it is interrupted."""
    invocation = Invocation.here(context)
    settings = invocation.settings(
        host=host,
        port=port,
        auth=auth,
        address=address,
        target=target,
        device=device_setting(device),
    ).values
    check_devices(device, settings.target)
    from tuner.app.service.serve import serve_here

    serve_here(settings, started=lambda url: invocation.output.note(f"listening on {url}"))
