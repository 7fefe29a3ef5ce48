"""`tuner report`: a job as one self-contained HTML page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.invocation import Invocation
from tuner.cli.jobs import JobName
from tuner.cli.output_file import check_output, write_output

STDOUT = Path("-")


def report(
    context: typer.Context,
    job: JobName,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="where to; - for standard output, left out: JOB.html",
        ),
    ] = None,
) -> None:
    """Writes a job as one page with its drawings, tables and style inside: no script,
    nothing loaded from anywhere."""
    from tuner.api.dashboard.report import report as page
    from tuner.cli.backend.local import resolve

    invocation = Invocation.of(context)
    with invocation.database() as database, database.read() as session:
        job_id = resolve(session, job)
        text = page(session, job_id)
    content = text.encode()
    if output == STDOUT:
        sys.stdout.buffer.write(content)  # the page says that it is UTF-8, whatever the terminal is
        sys.stdout.flush()
        return
    file = output or Path(f"{job_id}.html")
    check_output(file)
    write_output(file, content)
    if invocation.output.as_json:
        invocation.output.document({"job": job_id, "file": str(file), "bytes": len(content)})
    else:
        invocation.output.line(f"job {job_id}: {file}, {len(content) / 1000:.0f} kB")
