"""`tuner grad`: the derivative of a workload as a program in the notation."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli import documents
from tuner.cli.invocation import Invocation
from tuner.cli.workloads import Notation, Shapes, read_workload


def grad(
    context: typer.Context,
    spec: Annotated[
        str | None,
        typer.Argument(metavar="SPEC", help="a workload, such as softmax:M=512,N=512"),
    ] = None,
    notation: Notation = None,
    shapes: Shapes = None,
    wrt: Annotated[
        str | None,
        typer.Option(
            "--wrt", metavar="NAME,...", help="the inputs to differentiate by; all without it"
        ),
    ] = None,
) -> None:
    """Prints the program that computes a workload's derivative: what `tuner tune
    --notation FILE` takes."""
    from tuner.workload.derivative.workload import derivative_of

    output = Invocation.of(context).output
    names = None if wrt is None else [name.strip() for name in wrt.split(",")]
    derivative = derivative_of(read_workload(spec, notation, shapes), names)
    if output.as_json:
        output.document({"workload": documents.workload(derivative)})
    else:
        output.line((derivative.notation or "").rstrip())
