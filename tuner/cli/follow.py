"""Shows a job's events as they come, for `tuner watch` and for jobs that a service runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tuner.api.schemas import EventAnswer, JobAnswer
from tuner.cli.interruption import raised_on_signal

if TYPE_CHECKING:
    from tuner.cli.backend.roles import Jobs
    from tuner.cli.progress import TuningDisplay

FINISHED = ("succeeded", "failed", "cancelled")


class Reporter:
    """Shows events on a display.

    Trials from before the reporter was made count as past: they say nothing of the rate.
    """

    def __init__(self, jobs: Jobs, job: JobAnswer, display: TuningDisplay) -> None:
        self._jobs, self._job, self._display, self._past = jobs, job, display, job.last_event
        self._position: int | None = None

    def take(self, event: EventAnswer) -> None:
        data = event.data
        match event.kind:
            case "trial":
                self._turn_to(int(data.get("task", 0)))
                failed = None if data.get("outcome") == "ok" else str(data.get("outcome"))
                median_s = data.get("median_s")
                self._display.trial(
                    int(data["number"]), median_s, failed=failed, past=event.sequence <= self._past
                )
            case "best":
                self._turn_to(int(data.get("task", 0)))
                self._display.best(float(data["median_s"]))
            case "kernel":
                self._turn_to(int(data.get("task", 0)))
                self._display.end(None)
            case "note":
                self._display.note(str(data.get("text", "")))
            case "running":
                self._display.note(f"running, by {data.get('owner', 'an orchestrator')}")
            case "queued" | "cancelling":
                self._display.note(event.kind)
            case "succeeded" | "failed" | "cancelled":
                self._display.end(None if event.kind == "succeeded" else event.kind)

    def _turn_to(self, position: int) -> None:
        """Makes the display show another workload. Its space is known by its first trial."""
        if position == self._position:
            return
        self._display.end(None)
        self._position = position
        self._job = self._jobs.get(self._job.id)
        task = self._job.tasks[position]
        self._display.begin(
            spec=task.workload.spec,
            flops=flops_of(self._job, position),
            space_size=task.space_size,
            trials=self._job.trials,
            seconds=self._job.seconds,
        )


def follow(
    jobs: Jobs,
    job: str,
    display: TuningDisplay,
    *,
    on_interrupt: Callable[[], object] | None = None,
) -> JobAnswer:
    """Shows the job's events from the first to the last; returns the job as it ended.

    The first Ctrl-C calls `on_interrupt` and goes on to the job's end. Without it, and at
    the second Ctrl-C, KeyboardInterrupt is raised.
    """
    reporter, after, asked = Reporter(jobs, jobs.get(job), display), 0, False
    with raised_on_signal():
        while True:
            try:
                for event in jobs.events(job, after=after):
                    after = event.sequence
                    reporter.take(event)
                ended = jobs.get(job)
                if ended.state in FINISHED:
                    return ended
            except KeyboardInterrupt:
                if on_interrupt is None or asked:
                    raise
                asked = True
                display.note("stopping; once more to give up at once")
                on_interrupt()


def flops_of(job: JobAnswer, position: int) -> int:
    """Operations in one call of a workload; 0 where its text is not known.

    The workload is made again from its text.
    """
    from tuner.errors import WorkloadError
    from tuner.workload.spec import workload_from_notation, workload_from_params

    workload = job.tasks[position].workload
    try:
        if workload.op is not None:
            return workload_from_params(workload.op, workload.params or {}).expression.flops
        if workload.notation is not None:
            return workload_from_notation(workload.notation, workload.shapes or {}).expression.flops
    except WorkloadError:  # of a service whose catalogue is another version's
        return 0
    return 0
