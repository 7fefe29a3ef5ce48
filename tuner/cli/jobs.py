"""`tuner jobs`, `show`, `trials`, `cancel`: jobs and what became of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner import units
from tuner.cli import documents
from tuner.cli.curve import curve_lines
from tuner.cli.invocation import Invocation
from tuner.errors import UsageError
from tuner.measure.cache import WARM
from tuner.measure.objective import FASTEST

if TYPE_CHECKING:
    from tuner.api.schemas import JobAnswer, TrialAnswer

JobName = Annotated[
    str, typer.Argument(metavar="JOB", help="the job's id, or 'last' for the newest")
]


def jobs(
    context: typer.Context,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="only jobs in this state; may be given several times"),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=100_000, help="at most so many, the newest")
    ] = 50,
) -> None:
    """Lists jobs, the newest first."""
    invocation = Invocation.of(context)
    with invocation.backend() as backend:
        listed = backend.jobs.list(states=state or (), limit=limit)
    if invocation.output.as_json:
        invocation.output.items([documents.job(job) for job in listed])
        return
    rows = [
        (
            job.id,
            job.state,
            _specs(job),
            f"{sum(task.trials_done for task in job.tasks)}/{job.trials * len(job.tasks)}",
            ", ".join(units.seconds(task.best_median_s) for task in job.tasks[:3]),
            units.local_moment(job.created_at),
        )
        for job in listed
    ]
    invocation.output.table(
        ("job", "state", "workloads", "trials", "best", "created"), rows, right=("trials", "best")
    )


def show(
    context: typer.Context,
    job: JobName,
    plot: Annotated[
        bool, typer.Option("--plot", help="draw best so far over trials, for people only")
    ] = False,
) -> None:
    """Shows one job: its budget, each workload's trials and kernel, and what went wrong."""
    invocation = Invocation.of(context)
    with invocation.backend() as backend:
        answer = backend.jobs.get(job)
        drawn = (
            curve_lines(backend, answer, min(120, invocation.output.stdout.width)) if plot else []
        )
    if invocation.output.as_json:
        invocation.output.document(documents.job(answer))
        return
    for name, text in _facts(answer):
        invocation.output.line(f"{name:<9} {text}")
    invocation.output.line()
    _print_tasks(invocation, answer)
    for line in drawn:
        invocation.output.line(line)


def _budget(job: JobAnswer) -> str:
    """The trials and seconds of a job, and what they are for."""
    seconds = [] if job.seconds is None else [units.duration(job.seconds)]
    if job.kind == "model":
        trials = f"{job.trials} trials for each kernel on average"
        return " or ".join([trials, *(f"{limit} for all" for limit in seconds)])
    return " or ".join([f"{job.trials} trials", *seconds]) + " for each workload"


def _facts(job: JobAnswer) -> tuple[tuple[str, str], ...]:
    """What is true of the job as a whole, with names."""
    reason = job.error or job.waiting
    return (
        ("job", job.id),
        ("state", f"{job.state}: {reason}" if reason else job.state),
        ("target", job.target.name),
        (
            "budget",
            f"{_budget(job)}; {job.strategy}, seed {job.seed}, "
            f"threads {job.threads}"
            + ("" if job.cache == WARM else f", {job.cache} caches")
            + ("" if job.objective == FASTEST.text else f", by {job.objective}"),
        ),
        ("created", units.local_moment(job.created_at)),
        ("started", units.local_moment(job.started_at)),
        ("finished", units.local_moment(job.finished_at)),
    )


def _print_tasks(invocation: Invocation, job: JobAnswer) -> None:
    rows = [
        (
            task.workload.spec,
            task.state,
            units.DASH if task.space_size is None else units.count(task.space_size),
            str(task.trials_done),
            str(task.trials_ok),
            units.seconds(task.best_median_s),
            task.stopped or units.DASH,
            task.kernel or units.DASH,
            task.error or "",
        )
        for task in job.tasks
    ]
    columns = (
        "workload",
        "state",
        "space",
        "trials",
        "ok",
        "best",
        "stopped by",
        "kernel",
        "error",
    )
    invocation.output.table(columns, rows, right=("space", "trials", "ok", "best"))


def trials(
    context: typer.Context,
    job: JobName,
    outcome: Annotated[
        list[str] | None,
        typer.Option(
            "--outcome",
            help="only trials with this outcome: ok, a failure kind, or failed for all of these",
        ),
    ] = None,
    t4: Annotated[
        bool, typer.Option("--t4", help="as one JSON document of the auto-tuning community's T4")
    ] = False,
) -> None:
    """Lists all trials of a job by number, with their configs and outcomes."""
    invocation = Invocation.of(context)
    with invocation.backend() as backend:
        listed = backend.jobs.trials(job, outcomes=outcome or ())
    if t4:
        invocation.output.document(_t4(listed))
        return
    if invocation.output.as_json:
        invocation.output.items([documents.trial(trial) for trial in listed])
        return
    rows = [
        (
            str(trial.workload),
            str(trial.number),
            trial.outcome,
            units.seconds(trial.median_s),
            units.config_text(trial.config),
        )
        for trial in listed
    ]
    invocation.output.table(
        ("workload", "number", "outcome", "median", "config"),
        rows,
        right=("workload", "number", "median"),
    )


def _t4(listed: Iterable[TrialAnswer]) -> Mapping[str, Any]:
    """The trials as a T4 document. Raises UsageError for those of several workloads."""
    from tuner.replay.t4 import Result, t4_document

    answers = list(listed)
    workloads = {trial.workload for trial in answers}
    if len(workloads) > 1:
        raise UsageError(
            f"the job has trials of {len(workloads)} workloads, and a T4 document holds those of "
            f"one; take --json"
        )
    return t4_document(
        [
            Result(
                config=trial.config,
                outcome=trial.outcome,
                median_s=trial.median_s,
                build_s=trial.build_s,
                measure_s=trial.measure_s,
                created_at=trial.created_at,
            )
            for trial in answers
        ]
    )


def cancel(context: typer.Context, job: JobName) -> None:
    """Cancels a job: a queued one at once, a running one as soon as its orchestrator
    sees it. `tuner resume` continues it."""
    invocation = Invocation.of(context)
    with invocation.backend() as backend:
        cancelled = backend.jobs.cancel(job)
    if invocation.output.as_json:
        invocation.output.document(documents.job(cancelled))
    else:
        invocation.output.line(
            f"job {cancelled.id} is {cancelled.state}; tuner resume {cancelled.id} continues it"
        )


def _specs(job: JobAnswer) -> str:
    """The job's first workload, and how many more there are."""
    more = f" and {len(job.tasks) - 1} more" if len(job.tasks) > 1 else ""
    return (job.tasks[0].workload.spec if job.tasks else "a model") + more
