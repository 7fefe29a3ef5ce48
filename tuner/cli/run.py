"""`tuner run`: a program whose recorded calls are answered by tuned kernels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner import units
from tuner.cli.invocation import Invocation
from tuner.cli.output_file import check_output, write_output
from tuner.cli.trace import LEAST_SHARE, STEM
from tuner.cli.workloads import TargetText, Threads

if TYPE_CHECKING:
    from tuner.trace.replacing import Answered, Run


def run(
    context: typer.Context,
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="the program and its arguments")
    ],
    record: Annotated[
        Path, typer.Option("--trace", metavar="FILE", help="what tuner trace wrote")
    ] = Path(STEM),
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="where counts of calls go, as JSON"),
    ] = None,
    target: TargetText = None,
    threads: Threads = None,
) -> None:
    """Runs a program with tuned kernels in place of its recorded calls of NumPy and PyTorch,
    where operator, shapes, strides and dtypes are exactly those; the rest is the library's.
    Streams and exit code are the program's; a count of calls is written at its end."""
    invocation = Invocation.here(context)
    settings = invocation.settings(target=target, threads=threads).values
    from tuner.app.replacements import replacements
    from tuner.trace.record import read
    from tuner.trace.replacing import run_replaced

    if report is not None:
        check_output(report)
    trace = read(record)
    with invocation.database() as database:
        replaced = replacements(database, trace, settings, LEAST_SHARE)
    if not replaced.calls:
        invocation.output.warning(
            f"no call of {record} has a kernel that is faster; tuner coverage {record} says more"
        )
    result = run_replaced(command, replaced.calls, replaced.library)
    if report is not None:
        write_output(report, _encoded(result))
    _print(invocation, result)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _print(invocation: Invocation, result: Run) -> None:
    output = invocation.output
    for note in result.notes:
        output.warning(note)
    if not result.calls:
        return
    by_kernel = sum(each.by_kernel for each in result.calls)
    by_library = sum(each.by_library for each in result.calls)
    output.note(
        f"{units.count(by_kernel)} of {units.count(by_kernel + by_library)} calls that have "
        f"kernels were answered by them, in {units.count(result.processes)} "
        f"process{'' if result.processes == 1 else 'es'} of Python"
    )
    for each in result.calls:
        output.note(f"  {each.call.operator} {each.call.shapes}: {_counts(each)}")


def _counts(each: Answered) -> str:
    if not each.by_kernel + each.by_library:
        return "not called"
    left = f", {units.count(each.by_library)} left to the library" if each.by_library else ""
    return f"{units.count(each.by_kernel)}{left}"


def _encoded(result: Run) -> bytes:
    from tuner.trace.record import finite

    document: dict[str, Any] = {
        "exit_code": result.exit_code,
        "processes": result.processes,
        "notes": list(result.notes),
        "calls": [
            {
                "library": each.call.library,
                "operator": each.call.operator,
                "arguments": [finite(argument) for argument in each.call.arguments],
                "by_kernel": each.by_kernel,
                "by_library": each.by_library,
            }
            for each in result.calls
        ],
    }
    return (json.dumps(document, indent=1) + "\n").encode()
