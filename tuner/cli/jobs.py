"""`tuner jobs`, `show`, `trials`, `cancel`: what was asked for and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli import documents, units
from tuner.cli.curve import curve_lines
from tuner.cli.documents import Names
from tuner.cli.invocation import Invocation

if TYPE_CHECKING:
    from db.engine import Session
    from db.jobs import Job
    from db.trials import StoredTrial

JobName = Annotated[str, typer.Argument(metavar="JOB", help="the job's id, or 'last' for the newest")]
PAGE = 500


def jobs(
    context: typer.Context,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="only jobs in this state; may be given several times")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="at most so many, the newest")] = 50,
) -> None:
    """Lists jobs, the newest first."""
    from db import jobs as queries

    invocation = Invocation.of(context)
    found: list[Job] = []
    cursor: str | None = None
    with invocation.database() as database, database.read() as session:
        while True:
            page = queries.list_page(session, state=state or (), cursor=cursor, limit=min(PAGE, limit - len(found)))
            found += page.items
            cursor = page.next
            if cursor is None or len(found) >= limit:
                break
        names = _names(session, found)
    if invocation.output.as_json:
        invocation.output.items([documents.job(job, names) for job in found])
        return
    rows = [
        (
            job.id,
            job.state,
            _specs(job, names),
            f"{sum(task.trials_done for task in job.tasks)}/{job.trials * len(job.tasks)}",
            ", ".join(units.seconds(task.best_median_s) for task in job.tasks[:3]),
            _local(job.created_at),
        )
        for job in found
    ]
    invocation.output.table(("job", "state", "workloads", "trials", "best", "created"), rows, right=("trials", "best"))


def show(
    context: typer.Context,
    job: JobName,
    plot: Annotated[bool, typer.Option("--plot", help="draw best so far over trials, for people only")] = False,
) -> None:
    """Shows one job: its budget, each workload's trials and kernel, and what went wrong."""
    from db import jobs as queries

    invocation = Invocation.of(context)
    with invocation.database() as database, database.read() as session:
        found = queries.get(session, resolve(session, job))
        names = _names(session, [found])
        drawn = curve_lines(session, found, min(120, invocation.output.stdout.width)) if plot else []
    if invocation.output.as_json:
        invocation.output.document(documents.job(found, names))
        return
    budget = f"{found.trials} trials" + ("" if found.seconds is None else f" or {units.duration(found.seconds)}")
    for name, text in (
        ("job", found.id),
        ("state", found.state + (f": {found.error}" if found.error else "")),
        ("target", names.targets[found.target].name),
        ("budget", f"{budget} for each workload; {found.strategy}, seed {found.seed}, threads {found.threads}"),
        ("created", _local(found.created_at)),
        ("started", _local(found.started_at)),
        ("finished", _local(found.finished_at)),
    ):
        invocation.output.line(f"{name:<9} {text}")
    invocation.output.line()
    rows = [
        (
            names.spec(task.workload),
            task.state,
            "-" if task.space_size is None else units.count(task.space_size),
            str(task.trials_done),
            str(task.trials_ok),
            units.seconds(task.best_median_s),
            task.kernel or "-",
            task.error or "",
        )
        for task in found.tasks
    ]
    columns = ("workload", "state", "space", "trials", "ok", "best", "kernel", "error")
    invocation.output.table(columns, rows, right=("space", "trials", "ok", "best"))
    for line in drawn:
        invocation.output.line(line)


def trials(
    context: typer.Context,
    job: JobName,
    outcome: Annotated[
        list[str] | None,
        typer.Option("--outcome", help="only trials with this outcome: ok, a failure kind, or failed for all of these"),
    ] = None,
) -> None:
    """Lists all trials of a job by number, with their configs and outcomes."""
    from db import jobs as job_queries
    from db import trial_pages as queries

    invocation = Invocation.of(context)
    where = queries.TrialFilter(outcome=tuple(outcome or ()))
    found: list[StoredTrial] = []
    cursor: str | None = None
    with invocation.database() as database, database.read() as session:
        job_id = job_queries.get(session, resolve(session, job)).id
        while True:
            page = queries.list_page(session, job_id, where=where, cursor=cursor, limit=PAGE)
            found += page.items
            cursor = page.next
            if cursor is None:
                break
    if invocation.output.as_json:
        invocation.output.items([documents.trial(one) for one in found])
        return
    rows = [
        (
            str(one.position),
            str(one.trial.number),
            documents.outcome_name(one.trial.outcome),
            units.seconds(documents.median_s(one.trial.outcome)),
            documents.config_text(one.trial.config),
        )
        for one in found
    ]
    invocation.output.table(("workload", "number", "outcome", "median", "config"), rows, right=("workload", "number", "median"))


def cancel(context: typer.Context, job: JobName) -> None:
    """Cancels a job: a queued one at once, a running one as soon as its orchestrator sees it. `tuner resume` continues it."""
    from db import jobs as queries

    invocation = Invocation.of(context)
    with invocation.database() as database, database.write() as session:
        found = queries.request_cancel(session, resolve(session, job))
        names = _names(session, [found])
    if invocation.output.as_json:
        invocation.output.document(documents.job(found, names))
    else:
        invocation.output.line(f"job {found.id} is {found.state}; tuner resume {found.id} continues it")


def resolve(session: Session, name: str) -> str:
    """The id meant by a JOB argument; 'last' is the newest job there is. Raises NotFound where there is none."""
    from db import jobs as queries
    from db.errors import NotFound

    if name != "last":
        return name
    page = queries.list_page(session, limit=1)
    if not page.items:
        raise NotFound("there is no job yet; `tuner tune SPEC` makes one")
    return page.items[0].id


def _names(session: Session, found: Sequence[Job]) -> Names:
    return Names.of(
        session, workloads=(task.workload for job in found for task in job.tasks), targets=(job.target for job in found)
    )


def _specs(job: Job, names: Names) -> str:
    more = f" and {len(job.tasks) - 1} more" if len(job.tasks) > 1 else ""
    return names.spec(job.tasks[0].workload) + more


def _local(moment: datetime | None) -> str:
    return "-" if moment is None else moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")
