"""A model's job as its page shows it: the graph, what each kernel takes, errors and memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.api.dashboard.charts import plots
from tuner.api.dashboard.charts import rails as drawings
from tuner.api.routes.models import description_of, measurement_of
from tuner.api.service import Service
from tuner.api.work_time import work_time
from tuner.db import kernels, runners, targets
from tuner.db.engine import Session
from tuner.db.jobs import FINISHED, Job, Task
from tuner.db.tasks import DESCRIPTION, LIBRARY, MAX_ERROR
from tuner.models.description import Description, Measurement, Step
from tuner.target.target import Target
from tuner.workload.expression import Tensor
from tuner.workload.workload import Numerics

HEAVY = 0.02  # share of the model's time from which a node of the drawing is filled
MOST_ROWS = 1000  # of the graph that a page shows
MOST_SHAPES = 4  # of a kernel's arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """A kernel of the model, with its task in the job."""

    key: str  # of the workload
    name: str
    numerics: Numerics
    gives: str  # shapes of its results
    takes: str  # and of what it reads
    calls: int  # in one call of the model
    task: Task | None
    position: int | None  # of the task
    alone_s: float | None  # a call as raced, or in the best trial so far
    inside_s: float | None  # a call within the library
    peak_fraction: float | None
    share: float | None  # of the time of all kernels
    bar: str  # SVG

    @property
    def call_s(self) -> float | None:
        return self.inside_s or self.alone_s


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRow:
    """A step of the model."""

    number: int
    step: Step
    kernel: KernelRow
    reads: str
    writes: str
    share: float | None  # of the time of all kernels, its calls alone
    rail: str  # SVG


@dataclass(frozen=True, kw_only=True)
class ModelView:
    job: Job
    target: Target
    waiting: str | None
    description: Description
    measurement: Measurement | None
    kernels: Sequence[KernelRow]  # the one that takes most first
    graph: Sequence[GraphRow]
    hidden: int  # steps beyond those in `graph`
    has_library: bool
    elapsed_s: float | None  # of work on the job

    @property
    def finished(self) -> bool:
        return self.job.state in FINISHED

    @property
    def max_error(self) -> float | None:
        """The error that the outputs may have; None where their dtypes decide."""
        given = self.job.settings.get(MAX_ERROR)
        return None if given is None else float(given)

    @property
    def calls(self) -> int:
        return sum(step.calls for step in self.description.steps)

    @property
    def trials(self) -> int:
        return sum(task.trials_done for task in self.job.tasks)

    @property
    def estimate_s(self) -> float | None:
        """The time of all kernels as they are so far; None while one has none."""
        times = [(row.call_s, row.calls) for row in self.kernels]
        finished_times = [(seconds, calls) for seconds, calls in times if seconds is not None]
        if len(finished_times) < len(times):
            return None
        return sum(seconds * calls for seconds, calls in finished_times)


def is_described(job: Job) -> bool:
    """Whether a worker has written down what the job's model is."""
    return isinstance(job.settings.get(DESCRIPTION), str)


def load(session: Session, service: Service, job: Job) -> ModelView:
    description, measurement = description_of(service, job), measurement_of(job)
    rows = kernel_rows(job, description, measurement, raced_times(session, job))
    by_key = {row.key: row for row in rows}
    steps = description.steps[:MOST_ROWS]
    return ModelView(
        job=job,
        target=targets.get(session, job.target),
        waiting=runners.waiting(session, [job]).get(job.id),
        description=description,
        measurement=measurement,
        kernels=rows,
        graph=graph_rows(description, steps, by_key),
        hidden=len(description.steps) - len(steps),
        has_library=isinstance(job.settings.get(LIBRARY), str),
        elapsed_s=work_time(session, job).total_s,
    )


def raced_times(session: Session, job: Job) -> Mapping[str, float]:
    """Seconds of a call by workload: of the kernel it ended with, else of its best trial."""
    times = {}
    for task in job.tasks:
        kernel = None if task.kernel is None else kernels.get(session, task.kernel)
        seconds = task.best_median_s if kernel is None else kernel.median_s
        if seconds is not None:
            times[task.workload] = seconds
    return times


def kernel_rows(
    job: Job,
    description: Description,
    measurement: Measurement | None,
    raced: Mapping[str, float],
) -> list[KernelRow]:
    calls: Counter[str] = Counter()
    first: dict[str, Step] = {}
    for step in description.steps:
        calls[step.kernel] += step.calls
        first.setdefault(step.kernel, step)
    inside = {} if measurement is None else measurement.kernels
    positions = {task.workload: position for position, task in enumerate(job.tasks)}
    totals = {
        key: count * (inside[key].inside_s if key in inside else raced[key])
        for key, count in calls.items()
        if key in inside or key in raced
    }
    whole_s = sum(totals.values())
    rows = []
    for key, step in first.items():
        timed, position = inside.get(key), positions.get(key)
        share = totals[key] / whole_s if len(totals) == len(calls) and whole_s else None
        rows.append(
            KernelRow(
                key=key,
                name=step.name,
                numerics=step.numerics,
                gives=shapes_of(step.writes),
                takes=shapes_of(step.reads),
                calls=calls[key],
                task=None if position is None else job.tasks[position],
                position=position,
                alone_s=raced.get(key),
                inside_s=None if timed is None else timed.inside_s,
                peak_fraction=None if timed is None else timed.peak_fraction,
                share=share,
                bar=plots.bar(share or 0.0),
            )
        )
    return sorted(rows, key=lambda row: -(row.share or 0.0))


def graph_rows(
    description: Description, steps: Sequence[Step], by_key: Mapping[str, KernelRow]
) -> list[GraphRow]:
    drawn = drawings.rails([step.after for step in steps])
    pixels = drawings.width(drawn)
    rows = []
    for number, (step, rail) in enumerate(zip(steps, drawn, strict=True)):
        kernel = by_key[step.kernel]
        share = None if kernel.share is None else kernel.share * step.calls / kernel.calls
        rows.append(
            GraphRow(
                number=number,
                step=step,
                kernel=kernel,
                reads=", ".join(description.inputs[place].name for place in step.inputs),
                writes=", ".join(description.outputs[place].name for place in step.outputs),
                share=share,
                rail=drawings.draw(rail, pixels, heavy=share is not None and share >= HEAVY),
            )
        )
    return rows


def shapes_of(tensors: Sequence[Tensor]) -> str:
    more = len(tensors) - MOST_SHAPES
    listed = ", ".join(shape_of(tensor) for tensor in tensors[:MOST_SHAPES])
    return f"{listed} and {more} more" if more > 0 else listed


def shape_of(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "scalar"
