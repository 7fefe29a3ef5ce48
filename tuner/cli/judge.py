"""`tuner judge`: a kernel that somebody wrote in C, verified and timed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner import units
from tuner.cli import documents
from tuner.cli.exits import Exit
from tuner.cli.invocation import Invocation
from tuner.cli.workloads import Notation, Shapes, Threads, read_workload
from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.measure.foreign.verdict import ForeignTime, Verdict


def judge(
    context: typer.Context,
    spec: Annotated[
        str | None, typer.Argument(metavar="SPEC", help="what the kernel computes")
    ] = None,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="its C text; - is standard input")
    ] = None,
    notation: Notation = None,
    shapes: Shapes = None,
    signature: Annotated[
        bool, typer.Option("--signature", help="print the C function to write, and judge nothing")
    ] = False,
    race: Annotated[
        bool, typer.Option("--race/--no-race", help="whether a verified kernel is timed")
    ] = True,
    threads: Threads = None,
) -> None:
    """Judges a kernel in C: right or what is wrong with it, and how fast beside the
    stored kernel or the default schedule."""
    invocation = Invocation.of(context)
    settings = invocation.database_settings()
    if notation is not None and file is None and spec is not None:
        file, spec = Path(spec), None  # the notation stands for the SPEC
    workload = read_workload(spec, notation, shapes)
    if signature:
        from tuner.export.header import signature_of

        text = signature_of(workload)
        if invocation.output.as_json:
            invocation.output.document({"signature": text})
        else:
            invocation.output.line(text.rstrip())
        return
    if file is None:
        raise UsageError(
            "a FILE with the kernel's C text is missing; --signature prints what it must define"
        )
    source = _read(file)
    from tuner.app.races.foreign import judged

    settings = invocation.settings(threads=threads)
    with invocation.database() as database:
        verdict = judged(database, workload, source, settings.values, race=race)
    if invocation.output.as_json:
        from tuner.workers.jobs.verdicts import verdict_document

        described = {**documents.workload(workload), "spec": workload.spec}
        invocation.output.document({"workload": described, **verdict_document(verdict)})
    else:
        _print(invocation, verdict)
    if not verdict.verified:
        raise typer.Exit(Exit.FAILED)


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
