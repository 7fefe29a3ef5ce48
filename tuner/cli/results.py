"""The results of a job: its kernels, for people or as JSON, and the exit code."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from tuner import units
from tuner.cli import documents
from tuner.cli.exits import Exit

if TYPE_CHECKING:
    from tuner.api.schemas import JobAnswer, KernelAnswer, LossAnswer, TaskAnswer
    from tuner.cli.backend.roles import Backend
    from tuner.cli.invocation import Invocation


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of tuning one workload."""

    task: TaskAnswer
    # None where the job ended before promotion, or not even the default schedule could
    # be verified.
    kernel: KernelAnswer | None
    failed: dict[str, int]  # trials by kind of failure


def conclude(invocation: Invocation, backend: Backend, job: JobAnswer) -> None:
    """Prints the results of a job that has ended, and ends the command.

    Raises typer.Exit unless the job succeeded.
    """
    output = invocation.output
    results = results_of(backend, job)
    if output.as_json:
        output.document({"job": job.id, "results": [_document(job, result) for result in results]})
    else:
        _summary(invocation, results)
    check_ended(invocation, job)


def check_ended(invocation: Invocation, job: JobAnswer) -> None:
    """Says how an ended job failed or was cancelled, and raises typer.Exit then."""
    output = invocation.output
    if job.state == "cancelled":
        output.warning(f"job {job.id} was cancelled; tuner resume {job.id} continues it")
        raise typer.Exit(Exit.CANCELLED)
    if job.state != "succeeded":
        output.warning(f"job {job.id} {job.state}: {job.error}; tuner resume {job.id} tries again")
        # A task fails only where its default schedule could not be verified. Any other
        # failure is one of the job.
        unverified = any(task.state == "failed" for task in job.tasks)
        raise typer.Exit(Exit.NO_KERNEL if unverified else Exit.FAILED)


def speed_up(kernel: KernelAnswer) -> float | None:
    """The default schedule's time divided by the kernel's; None where it was not timed."""
    return kernel.default_median_s / kernel.median_s if kernel.default_median_s else None


def results_of(backend: Backend, job: JobAnswer) -> list[Result]:
    failed: dict[int, Counter[str]] = {}
    if any(task.trials_ok < task.trials_done for task in job.tasks):
        for trial in backend.jobs.trials(job.id, outcomes=["failed"]):
            failed.setdefault(trial.workload, Counter())[trial.outcome] += 1
    return [
        Result(
            task=task,
            kernel=None if task.kernel is None else backend.kernels.get(task.kernel),
            failed=dict(failed.get(position, {})),
        )
        for position, task in enumerate(job.tasks)
    ]


def _document(job: JobAnswer, result: Result) -> dict[str, Any]:
    task = result.task
    return {
        "workload": documents.answered_workload(task.workload),
        "target": documents.target(job.target),
        "space_size": task.space_size,
        "trials": {"total": task.trials_done, "ok": task.trials_ok, "failed": result.failed},
        "kernel": None if result.kernel is None else _kernel(result.kernel),
        "elapsed_s": {
            name: task.elapsed_s.get(name, 0.0) for name in ("total", "search", "build", "measure")
        },
    }


def _kernel(kernel: KernelAnswer) -> dict[str, Any]:
    loss = None if kernel.loss is None else kernel.loss.model_dump(mode="json")
    return {**documents.kernel_numbers(kernel), "loss": loss}


def _summary(invocation: Invocation, results: list[Result]) -> None:
    rows = []
    for result in results:
        kernel, task = result.kernel, result.task
        if kernel is None:
            unknown = (units.DASH,) * 5
            rows.append(
                (task.workload.spec, *unknown, str(task.trials_done), task.error or "no kernel yet")
            )
            continue
        rows.append(
            (
                task.workload.spec,
                kernel.id,
                units.seconds(kernel.median_s),
                units.rate(kernel.gflops or None),
                units.percent(kernel.roofline_fraction),
                units.ratio(speed_up(kernel)),
                str(task.trials_done),
                ("verified" if kernel.verified else "unverified")
                + (", disturbed" if kernel.disturbed else ""),
            )
        )
    columns = (
        "workload",
        "kernel",
        "median",
        "speed",
        "of roofline",
        "default/kernel",
        "trials",
        "",
    )
    invocation.output.table(columns, rows, right=columns[2:7])
    for result in results:
        if result.kernel is not None and result.kernel.loss is not None:
            invocation.output.note(f"{result.task.workload.spec}: {_loss(result.kernel.loss)}")


def _loss(loss: LossAnswer) -> str:
    """Such as `within 6% of the best known, 90% sure, half within 1%; 20 s more: within 1%`."""
    text = (
        f"within {units.percent(loss.within)} of the best known, "
        f"{units.percent(loss.confidence)} sure, half within {units.percent(loss.median)}"
    )
    if loss.more is not None:
        cost = f"{loss.more.trials} more trials"
        if loss.more.seconds is not None:
            cost += f", {units.seconds(loss.more.seconds)}"
        text += f"; {cost}: within {units.percent(loss.more.within)}"
    searches = f"{loss.searches} searches"
    return f"{text} (by {searches}{' on recorded tables' if loss.recorded else ' on this target'})"
