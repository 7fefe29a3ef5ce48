"""`tuner tune` and `tuner resume`: a job from its request to its kernels, watched on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli import documents, units
from tuner.cli.exits import Exit
from tuner.cli.interruption import stop_on_signal
from tuner.cli.invocation import Invocation
from tuner.cli.jobs import JobName, resolve
from tuner.cli.workloads import Notation, Shapes, Specs, TargetText, Threads, read_workloads

if TYPE_CHECKING:
    from db.engine import Database
    from tuner.app.jobs import TaskResult
    from tuner.settings import Settings

Trials = Annotated[int | None, typer.Option("--trials", metavar="N", help="trials for each workload, trial 0 among them")]
Seconds = Annotated[float | None, typer.Option("--seconds", metavar="S", help="seconds for each workload, at most")]


def tune(
    context: typer.Context,
    specs: Specs = None,
    notation: Notation = None,
    shapes: Shapes = None,
    trials: Trials = None,
    seconds: Seconds = None,
    strategy: Annotated[
        str | None, typer.Option("--strategy", metavar="NAME", help="annealing, evolutionary, random or grid")
    ] = None,
    target: TargetText = None,
    threads: Threads = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="seed of everything random")] = None,
) -> None:
    """Tunes each workload and stores its verified winner; budgets count for each. Ctrl-C stops cleanly, and resume continues."""
    from tuner.workload.spec import parse_portfolio

    invocation = Invocation.of(context)
    ranged = [parse_portfolio(spec) for spec in specs or () if ".." in spec]
    single = [spec for spec in specs or () if ".." not in spec]
    workloads = read_workloads(single, notation, shapes) if single or notation or shapes or not ranged else []
    settings = invocation.settings(
        trials=trials, seconds=seconds, strategy=strategy, target=target, threads=threads, seed=seed
    ).values
    from tuner.app.jobs import submit
    from tuner.app.machine import checked_target, with_limits
    from tuner.app.portfolio import members_to_tune, rows_checked

    machine = checked_target(settings)
    for portfolio in ranged:
        rows_checked(portfolio)
    with invocation.database(create=True) as database:
        limited = with_limits(database, machine)
        members = [one for portfolio in ranged for one in members_to_tune(portfolio, limited, settings.threads)]
        job = submit(database, list({one.key: one for one in (*workloads, *members)}.values()), limited, settings)
        _watch(invocation, database, job.id, settings)


def resume(context: typer.Context, job: JobName, trials: Trials = None, seconds: Seconds = None) -> None:
    """Continues a cancelled, failed or killed job after its recorded trials, none of which is lost or measured again."""
    from tuner.app.jobs import requeue

    invocation = Invocation.of(context)
    settings = invocation.settings(trials=trials, seconds=seconds).values
    with invocation.database() as database:
        with database.read() as session:
            job_id = resolve(session, job)
        requeue(database, job_id, trials=trials, seconds=seconds)
        _watch(invocation, database, job_id, settings)


def _watch(invocation: Invocation, database: Database, job_id: str, settings: Settings) -> None:
    """Runs the queued job with a live display, prints what came of it, and ends with the exit code that says so."""
    from tuner.app.jobs import results, run
    from tuner.cli.progress import TuningDisplay
    from workers.orchestrator import Interruption

    output = invocation.output
    with TuningDisplay(output.stderr, quiet=output.quiet) as display, stop_on_signal(display.note) as stopping:
        display.note(f"job {job_id}")
        report = run(
            database, job_id, settings, observer=display.observe, interrupt=lambda: Interruption.CANCEL if stopping() else None
        )
    found = results(database, job_id)
    if output.as_json:
        output.document({"job": job_id, "results": [_document(result) for result in found]})
    else:
        _summary(invocation, found)
    if report.job.state == "cancelled":
        output.warning(f"job {job_id} was cancelled; tuner resume {job_id} continues it")
        raise typer.Exit(Exit.CANCELLED)
    if report.job.state != "succeeded":
        output.warning(f"job {job_id} {report.job.state}: {report.job.error}; tuner resume {job_id} tries again")
        raise typer.Exit(Exit.NO_KERNEL if report.unverified else Exit.FAILED)


def _document(result: TaskResult) -> dict[str, Any]:
    parts = {name: result.elapsed_s.get(name, 0.0) for name in ("total", "search", "build", "measure")}
    return {
        "workload": documents.workload(result.workload),
        "target": documents.target(result.target),
        "space_size": result.space_size,
        "trials": {
            "total": result.trials,
            "ok": result.trials_ok,
            "failed": {kind.value: count for kind, count in result.failures.items()},
        },
        "kernel": None if result.kernel is None else documents.kernel_numbers(result.kernel),
        "elapsed_s": parts,
    }


def _summary(invocation: Invocation, found: tuple[TaskResult, ...]) -> None:
    rows = []
    for result in found:
        kernel = result.kernel
        if kernel is None:
            rows.append((result.workload.spec, "-", "-", "-", "-", "-", str(result.trials), result.error or "no kernel yet"))
            continue
        lead = kernel.default_median_s / kernel.median_s if kernel.default_median_s else None
        rows.append(
            (
                result.workload.spec,
                kernel.id,
                units.seconds(kernel.median_s),
                units.rate(kernel.gflops or None),
                units.percent(kernel.roofline_fraction),
                units.ratio(lead),
                str(result.trials),
                "verified" if kernel.verified else "unverified",
            )
        )
    columns = ("workload", "kernel", "median", "speed", "of roofline", "default/kernel", "trials", "")
    invocation.output.table(columns, rows, right=columns[2:7])
