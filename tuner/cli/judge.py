"""`tuner judge`: a kernel that somebody wrote in C or CUDA C++, verified and timed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner import units
from tuner.cli import documents
from tuner.cli.exits import Exit
from tuner.cli.invocation import Invocation
from tuner.cli.workloads import Notation, Shapes, TargetText, Threads, read_workload
from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.measure.foreign.verdict import ForeignTime, Verdict


def judge(
    context: typer.Context,
    spec: Annotated[
        str | None, typer.Argument(metavar="SPEC", help="what the kernel computes")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="its text, in C or CUDA C++; - is standard input"),
    ] = None,
    notation: Notation = None,
    shapes: Shapes = None,
    signature: Annotated[
        bool, typer.Option("--signature", help="print the function to write, and judge nothing")
    ] = False,
    race: Annotated[
        bool, typer.Option("--race/--no-race", help="whether a verified kernel is timed")
    ] = True,
    threads: Threads = None,
    target: TargetText = None,
    grid: Annotated[
        str | None,
        typer.Option("--grid", metavar="X[,Y[,Z]]", help="of CUDA C++: blocks of its launch"),
    ] = None,
    block: Annotated[
        str | None,
        typer.Option("--block", metavar="X[,Y[,Z]]", help="of CUDA C++: threads of a block"),
    ] = None,
    shared_bytes: Annotated[
        int,
        typer.Option("--shared-bytes", metavar="N", help="of CUDA C++: dynamic, of a block"),
    ] = 0,
) -> None:
    """Judges a kernel in C or CUDA C++: right or what is wrong with it, and how fast beside
    the stored kernel or the default schedule."""
    invocation = Invocation.of(context)
    settings = invocation.database_settings()
    if notation is not None and file is None and spec is not None:
        file, spec = Path(spec), None  # the notation stands for the SPEC
    workload = read_workload(spec, notation, shapes)
    if signature:
        from tuner.app.machine import named_target
        from tuner.export.header import cuda_signature_of, signature_of

        is_gpu = named_target(invocation.settings(target=target).values).on_device
        text = (cuda_signature_of if is_gpu else signature_of)(workload)
        if invocation.output.as_json:
            invocation.output.document({"signature": text})
        else:
            invocation.output.line(text.rstrip())
        return
    if file is None:
        raise UsageError(
            "a FILE with the kernel's text is missing; --signature prints what it must define"
        )
    from tuner.measure.foreign.dimensions import dimensions_given

    launch = dimensions_given(_extents("--grid", grid), _extents("--block", block), shared_bytes)
    if file.suffix == ".cu" and launch is None:
        raise UsageError(f"{file} is CUDA C++; give its launch by --grid and --block")
    source = _read(file)
    from tuner.app.races.foreign import judged

    settings = invocation.settings(threads=threads, target=target)
    with invocation.database() as database:
        verdict = judged(database, workload, source, settings.values, race=race, launch=launch)
    if invocation.output.as_json:
        from tuner.workers.jobs.verdicts import verdict_document

        described = {**documents.workload(workload), "spec": workload.spec}
        invocation.output.document({"workload": described, **verdict_document(verdict)})
    else:
        _print(invocation, verdict)
    if not verdict.verified:
        raise typer.Exit(Exit.FAILED)


def _extents(option: str, text: str | None) -> list[int] | None:
    """The numbers of an option. Raises UsageError."""
    try:
        return None if text is None else [int(extent) for extent in text.split(",")]
    except ValueError:
        raise UsageError(f"{option} {text}: give one to three numbers, such as 64,4") from None


def _read(file: Path) -> str:
    """The text of a file; `-` is standard input. Raises UsageError."""
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 text: byte {error.start}") from None


def _print(invocation: Invocation, verdict: Verdict) -> None:
    output = invocation.output
    output.line(f"{verdict.name}: {verdict.message}")
    element = verdict.element
    if element is not None:
        output.line(
            f"first wrong element: {element.output}{list(element.index)} is {element.value:.9g}, "
            f"expected {element.expected:.9g}, on {element.inputs} inputs"
        )
    if verdict.max_rel_error is not None:
        output.line(f"largest error: {verdict.max_rel_error:.1e}")
    if verdict.time is not None:
        output.line(_timed(verdict.time))


def _timed(time: ForeignTime) -> str:
    """Its time, the share of the machine's limit, and what it lost or won by."""
    low, high = (units.seconds(end) for end in time.ci95_s)
    share = (
        ""
        if time.roofline_fraction is None
        else f", {units.percent(time.roofline_fraction)} of the machine's limit"
    )
    return (
        f"{units.seconds(time.median_s)} a call (95%: {low} to {high}){share}; "
        f"{time.ratio.value:.3f} of the time of the {time.rival} "
        f"(95%: {time.ratio.ci95[0]:.3f} to {time.ratio.ci95[1]:.3f}), which takes "
        f"{units.seconds(time.rival_median_s)}"
    )
