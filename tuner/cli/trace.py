"""`tuner trace` and `tuner coverage`: what a program calls, and what of it has kernels."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner import units
from tuner.cli.invocation import Invocation
from tuner.cli.output_file import check_output, write_or_keep
from tuner.cli.results import conclude
from tuner.cli.workloads import TargetText, Threads
from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.api.coverage import Coverage, Covered
    from tuner.trace.record import Trace

STEM = "trace.json"
SHOWN = 30  # rows of the table, unless all are asked for
LEAST_SHARE = 0.001  # of the time of all calls, which makes a row


def trace(
    context: typer.Context,
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="the program and its arguments")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="where the record goes")
    ] = Path(STEM),
    cost: Annotated[
        float,
        typer.Option(
            "--cost", metavar="PCT", min=0.1, max=100, help="percent of the time it may take"
        ),
    ] = 2.0,
) -> None:
    """Runs a program and records its calls of NumPy, PyTorch and ONNX Runtime: operators,
    shapes, strides, dtypes, counts and times. Streams and exit code are the program's."""
    from tuner.trace.record import encoded
    from tuner.trace.recording import recorded

    invocation = Invocation.here(context)
    check_output(output)
    record = recorded(command, cost / 100)
    write_or_keep(output, encoded(record))
    for note in dict.fromkeys(note for process in record.processes for note in process.notes):
        invocation.output.warning(note)
    if not record.processes:
        invocation.output.warning(
            f"{command[0]} started no Python that could be recorded; those with -I, -E or -S "
            f"cannot be"
        )
    elif invocation.output.stderr.is_terminal:
        _note(invocation, record, output)
    if record.exit_code:
        raise typer.Exit(record.exit_code)


def _note(invocation: Invocation, record: Trace, path: Path) -> None:
    libraries = Counter[str]()
    for call in record.calls:
        libraries[call.library] += round(call.count)
    counts = ", ".join(f"{units.count(count)} of {name}" for name, count in libraries.items())
    invocation.output.note(f"{path}: {counts or 'no calls'}; tuner coverage {path} reads it")


def coverage(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="what tuner trace wrote")],
    everything: Annotated[
        bool, typer.Option("--all", help="also calls of less than 0.1% of the time")
    ] = False,
    target: TargetText = None,
    threads: Threads = None,
) -> None:
    """Says which calls of a recorded program have a tuned kernel, which could have one and
    which fall back, their share of the time, and what kernels gain."""
    invocation = Invocation.of(context)
    invocation.database_settings()
    settings = invocation.settings(target=target, threads=threads).values
    from tuner.app.traces import coverage as covered
    from tuner.target.detect import parse_target
    from tuner.trace.record import read
    from tuner.trace.workloads import expressed

    record = read(file)
    machine = parse_target(settings.target, settings.microarchitectures)
    calls = list(expressed(record, 0.0 if everything else LEAST_SHARE))
    with invocation.database() as database:
        result = covered(database, record, calls, machine, settings.threads)
    if result.unestimated is not None:
        invocation.output.note(f"untuned calls have no estimate: {result.unestimated}")
    if invocation.output.as_json:
        invocation.output.document(_document(result))
        return
    _print(invocation, result, everything)


def _print(invocation: Invocation, result: Coverage, everything: bool) -> None:
    output, whole_s = invocation.output, result.total_s
    shown = result.calls if everything else result.calls[:SHOWN]
    columns = ("call", "of", "count", "time", "share", "kernels", "gain", "")
    rows = [_row(each, whole_s) for each in shown]
    output.table(columns, rows, right=columns[2:7])
    if len(shown) < len(result.calls):
        output.note(f"{len(result.calls) - len(shown)} more calls; --all shows them")
    shares = {
        "tuned": result.seconds("tuned"),
        "could be tuned": result.seconds("untuned"),
        "left to the library": whole_s - result.seconds("tuned") - result.seconds("untuned"),
    }
    parts = ", ".join(
        f"{units.percent(seconds / whole_s if whole_s else 0.0)} {name}"
        for name, seconds in shares.items()
    )
    output.line(f"{units.seconds(whole_s)} in calls: {parts}")
    output.line(f"gain by kernels, measured or estimated: {units.seconds(result.gain_s)}")
    output.line(
        f"gain where tuner run answers calls by kernels: {units.seconds(result.run_gain_s)}"
    )


def _row(each: Covered, whole_s: float) -> tuple[str, ...]:
    call = each.call
    by_kernels = units.DASH if each.kernels_s is None else units.seconds(each.kernels_s)
    if each.kernels_s is not None and not each.is_measured:
        by_kernels = f"~{by_kernels}"
    gain = units.seconds(each.gain_s) if each.gain_s else units.DASH
    return (
        call.operator,
        call.shapes,
        units.count(round(call.count)),
        units.seconds(call.total_s),
        units.percent(call.total_s / whole_s if whole_s else 0.0),
        by_kernels,
        gain,
        each.state if each.reason is None else each.reason,
    )


def _document(result: Coverage) -> dict[str, Any]:
    from tuner.trace.record import finite

    return {
        "items": [
            {
                "library": each.call.library,
                "operator": each.call.operator,
                "arguments": [finite(argument) for argument in each.call.arguments],
                "count": each.call.count,
                "total_s": each.call.total_s,
                "state": each.state,
                "reason": each.reason,
                "kernels_s": each.kernels_s,
                "measured": each.is_measured,
                "gain_s": each.gain_s,
                "answered": each.is_answered,
                "run_gain_s": each.run_gain_s,
            }
            for each in result.calls
        ],
        "next": None,
        "total_s": result.total_s,
        "tuned_s": result.seconds("tuned"),
        "untuned_s": result.seconds("untuned"),
        "gain_s": result.gain_s,
        "run_gain_s": result.run_gain_s,
    }


def tune_trace(invocation: Invocation, path: Path, flags: dict[str, Any]) -> None:
    """`tuner tune --trace FILE`: one job for the calls that kernels could compute."""
    from tuner.app.machine import checked_target, with_limits
    from tuner.app.traces import submit_calls
    from tuner.cli.progress import TuningDisplay
    from tuner.trace.record import read
    from tuner.trace.workloads import expressed

    loaded = invocation.settings(**flags)
    if loaded.values.server:
        raise UsageError(
            f"{path} is tuned on this machine and cannot be sent to {loaded.values.server}; leave "
            f"out --server"
        )
    record = read(path)
    calls = list(expressed(record, LEAST_SHARE))
    machine = checked_target(loaded.values)
    with (
        invocation.backend(create=True, **flags) as backend,
        invocation.database(create=True) as database,
    ):
        target = with_limits(database, machine)
        job = submit_calls(
            database, calls, record.total_s, target, loaded.values, seconds=loaded.model_seconds
        )
        with TuningDisplay(invocation.output.stderr, quiet=invocation.output.quiet) as display:
            display.note(f"job {job.id}: {len(job.tasks)} kernels of {len(calls)} kinds of calls")
            ended = backend.work.run(job.id, display)
        conclude(invocation, backend, ended)
