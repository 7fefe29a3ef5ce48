"""`tuner worker`: this machine's lanes and builders for a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli.invocation import Invocation


def worker(
    context: typer.Context,
    address: Annotated[
        str | None,
        typer.Option("--address", metavar="HOST:PORT", help="of the Ray cluster to join"),
    ] = None,
    lanes: Annotated[
        str | None,
        typer.Option("--lanes", metavar="PLAN", help="cores that measure, cores that build"),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="TARGET", help="cpu, or cuda: its GPUs are the lanes"),
    ] = None,
    builders: Annotated[
        int | None, typer.Option("--builders", metavar="N", help="most builder processes")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="may be repeated")
    ] = None,
    name: Annotated[
        str,
        typer.Option("--name", metavar="NAME", help="among the workers; default: the host's name"),
    ] = "",
    node_ip: Annotated[
        str,
        typer.Option(
            "--node-ip", metavar="ADDRESS", help="by which the cluster reaches this machine"
        ),
    ] = "",
) -> None:
    """Joins a cluster with this machine's lanes and builders, until it is interrupted."""
    invocation = Invocation.here(context)
    settings = invocation.settings(
        address=address, target=target, lanes=lanes, builders=builders
    ).values
    from tuner.app.service.worker import join, labels_of

    join(
        settings,
        name=name,
        node_ip=node_ip,
        labels=labels_of(label or ()),
        note=invocation.output.note,
    )
