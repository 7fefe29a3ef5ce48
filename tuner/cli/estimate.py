"""`tuner estimate`: what kernels would take, before anything is tuned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner import units
from tuner.cli import documents
from tuner.cli.invocation import Invocation
from tuner.cli.latency_table import check_table, write_table
from tuner.cli.models import is_model
from tuner.cli.results import check_ended
from tuner.cli.tune import Trials, run_to_end
from tuner.cli.workloads import Notation, Shapes, Specs, TargetText, Threads, read_workloads
from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.api.estimate_schemas import AccuracyAnswer, EstimateAnswer, EstimatesAnswer
    from tuner.workload.workload import Workload


def estimate(
    context: typer.Context,
    specs: Specs = None,
    notation: Notation = None,
    shapes: Shapes = None,
    target: TargetText = None,
    threads: Threads = None,
    table: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="a table: .json, .csv or .parquet"),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--tune", metavar="SECONDS", help="first tunes, so long, what makes the answers surest"
        ),
    ] = None,
    trials: Trials = None,
) -> None:
    """Says what each workload would take once it is tuned, or all kernels of one
    MODEL.onnx; from measurements where there are some. Nothing is tuned without --tune."""
    invocation = Invocation.of(context)
    if table is not None:
        check_table(table)
    named = specs or []
    if any(map(is_model, named)):
        if len(named) > 1 or notation is not None:
            raise UsageError("a model is estimated by itself; give one MODEL.onnx and no SPEC")
        workloads, calls = _of_model(named[0], shapes or "")
    else:
        workloads = read_workloads(specs, notation, shapes)
        calls = [1] * len(workloads)
    if trials is not None and seconds is None:
        raise UsageError(f"--trials {trials} is for tuning; give --tune SECONDS with it")
    flags = {"target": target, "threads": threads, "trials": trials}
    with invocation.backend(create=seconds is not None, **flags) as backend:
        if seconds is not None:
            job = backend.work.learn(workloads, calls, seconds=seconds)
            check_ended(invocation, run_to_end(invocation, backend, job))
        answer = backend.kernels.estimate(workloads)
    if table is not None:
        write_table(table, answer, calls)
    whole = _sum(answer, calls) if any(map(is_model, named)) else None
    if invocation.output.as_json:
        invocation.output.document(_document(answer, calls, whole))
        return
    rows = [_row(item, count) for item, count in zip(answer.items, calls, strict=True)]
    if whole is not None:
        rows.append(("all calls", str(sum(calls)), *_times(whole), "sum", ""))
    columns = ("workload", "calls", "time", "from", "to", "source", "")
    invocation.output.table(columns, rows, right=columns[1:5])
    if answer.accuracy is not None:
        invocation.output.note(_accuracy(answer.accuracy))


def _of_model(path: str, shapes: str) -> tuple[list[Workload], list[int]]:
    """The workloads of a model, and how often a call of it calls each."""
    from tuner.models.files.input_shapes import parse_shapes
    from tuner.models.importer import import_file
    from tuner.models.workloads import workloads_of

    parts = workloads_of(import_file(Path(path), parse_shapes(shapes)))
    return [part.workload for part in parts], [part.calls for part in parts]


def _sum(answer: EstimatesAnswer, calls: Sequence[int]) -> tuple[float, float, float]:
    """Seconds of all calls with an interval, whose ends are the sums of the parts' ends."""
    parts = list(zip(answer.items, calls, strict=True))
    return (
        sum(item.median_s * count for item, count in parts),
        sum(item.low_s * count for item, count in parts),
        sum(item.high_s * count for item, count in parts),
    )


def _document(
    answer: EstimatesAnswer, calls: Sequence[int], whole: tuple[float, float, float] | None
) -> dict[str, Any]:
    """The answer as JSON values, as REST has it; of a model with its calls and their sum."""
    document = answer.model_dump(mode="json")
    document["target"] = documents.target(answer.target)
    if whole is not None:
        for item, count in zip(document["items"], calls, strict=True):
            item["calls"] = count
        document["model"] = dict(zip(("median_s", "low_s", "high_s"), whole, strict=True))
    return document


def _row(item: EstimateAnswer, calls: int) -> tuple[str, ...]:
    times = _times((item.median_s, item.low_s, item.high_s))
    note = "disturbed" if item.disturbed else item.neighbour or ""
    return (item.workload.spec, str(calls), *times, item.source, note)


def _times(seconds: tuple[float, float, float]) -> tuple[str, str, str]:
    median_s, low_s, high_s = map(units.seconds, seconds)
    return median_s, low_s, high_s


def _accuracy(accuracy: AccuracyAnswer) -> str:
    return (
        f"of {accuracy.kernels} kernels, each left out: half are within "
        f"{units.percent(accuracy.median_error)}, {units.percent(accuracy.within_10_percent)} "
        f"within 10%, {units.percent(accuracy.coverage)} in the interval of 90%"
    )
