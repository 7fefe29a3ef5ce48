"""`tuner lookup`: the kernel of a workload by one objective, or the Pareto front of two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tuner import units
from tuner.cli import documents
from tuner.cli.invocation import Invocation
from tuner.cli.workloads import (
    CacheText,
    Notation,
    ObjectiveText,
    Shapes,
    TargetText,
    WithinPercent,
    read_workload,
)
from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.api.lookup_schemas import LookupAnswer
    from tuner.api.schemas import KernelAnswer

COLUMNS = ("kernel", "threads", "median", "workspace", "code", "calls/s", "energy", "")


def lookup(
    context: typer.Context,
    spec: Annotated[
        str | None, typer.Argument(metavar="SPEC", help="a workload, such as softmax:M=64,N=64")
    ] = None,
    notation: Notation = None,
    shapes: Shapes = None,
    objective: ObjectiveText = None,
    within: WithinPercent = None,
    target: TargetText = None,
    threads: Annotated[
        str | None,
        typer.Option("--threads", metavar="N|auto", help="threads of the kernel; auto for any"),
    ] = None,
    cache: CacheText = None,
) -> None:
    """Prints the kernel of a workload that the objective chooses, or the front of two
    objectives. Nothing is tuned."""
    invocation = Invocation.of(context)
    workload = read_workload(spec, notation, shapes)
    asked = _threads(threads)
    count = None if asked == "auto" else asked  # whose bounds are those of the setting
    with invocation.backend(
        objective=objective, target=target, cache=cache, threads=count
    ) as backend:
        answer = backend.kernels.lookup(
            workload, threads=asked, within=None if within is None else within / 100
        )
    if invocation.output.as_json:
        invocation.output.document(_document(answer))
        return
    if answer.kernel is not None:
        rows = [_row(kernel) for kernel in answer.front or [answer.kernel]]
        invocation.output.table(COLUMNS, rows, right=COLUMNS[1:7])


def _threads(text: str | None) -> int | Literal["auto"] | None:
    if text is None:
        return None
    if text == "auto":
        return "auto"
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"threads is {text!r}; give a number, or auto") from None


def _row(kernel: KernelAnswer) -> tuple[str, ...]:
    calls_per_s, joules = kernel.calls_per_s, kernel.energy_j
    return (
        kernel.id,
        str(kernel.threads),
        units.seconds(kernel.median_s),
        units.DASH if kernel.workspace_bytes is None else units.size(kernel.workspace_bytes),
        units.DASH if kernel.code_bytes is None else units.size(kernel.code_bytes),
        units.DASH if calls_per_s is None else f"{calls_per_s:,.0f} by {kernel.instances}",
        units.DASH if joules is None else f"{units.three(joules * 1e3)} mJ",
        documents.remarks(kernel),
    )


def _document(answer: LookupAnswer) -> dict[str, Any]:
    return {
        "source": answer.source,
        "kernel": None if answer.kernel is None else documents.kernel(answer.kernel),
        "front": None
        if answer.front is None
        else [documents.kernel(each) for each in answer.front],
        "job": answer.job,
        "loss": None if answer.loss is None else answer.loss.model_dump(mode="json"),
    }
