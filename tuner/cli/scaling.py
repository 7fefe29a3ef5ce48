"""`tuner tune --threads auto`: kernels of several thread counts, and which is best for what.

One call is soonest done by the count of the shortest time; most calls a second may come
from several instances side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuner import units
from tuner.cli import documents
from tuner.cli.idle import measure_figures
from tuner.cli.invocation import Invocation
from tuner.cli.results import check_ended, results_of
from tuner.errors import UsageError
from tuner.measure.objective import THROUGHPUT

if TYPE_CHECKING:
    from tuner.api.schemas import JobAnswer, KernelAnswer
    from tuner.cli.backend.roles import Backend, JobRequest
    from tuner.workload.workload import Workload

AUTO = "auto"
Run = Callable[[Invocation, "Backend", "JobAnswer"], "JobAnswer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The kernel of one thread count."""

    threads: int
    kernel: KernelAnswer
    instances: int  # side by side on all cores
    calls_per_s: float  # of all together


def thread_counts(cores: int) -> list[int]:
    """1, 2, 4, … and all cores."""
    counts = [1]
    while 2 * counts[-1] < cores:
        counts.append(2 * counts[-1])
    return counts if cores == 1 else [*counts, cores]


def tune_scaling(
    invocation: Invocation, request: JobRequest, run: Run, flags: dict[str, Any]
) -> None:
    """Tunes each workload for each thread count of this machine, and prints the curves.

    How many calls a second instances of a kernel make is stored with it. The budget counts
    for each workload and count. Raises UsageError for a service, a range and a target that
    is not this machine's CPU.
    """
    from tuner.app.machine import checked_target
    from tuner.workers.fleet.machine import usable_nodes

    invocation.database_settings()
    if request.families:
        raise UsageError("--threads auto compares kernels of one shape; give no range of extents")
    cores = sum(len(node) for node in usable_nodes())
    settings = invocation.settings(**flags, threads=1).values
    if settings.device or settings.address or checked_target(settings, elsewhere=True).on_device:
        raise UsageError(
            f"--threads auto measures on all cores of this machine, and {settings.target} is "
            f"elsewhere; give --threads N"
        )
    jobs: list[JobAnswer] = []
    curves: dict[str, list[Point]] = {workload.key: [] for workload in request.workloads}
    for count in thread_counts(cores):
        with invocation.backend(create=True, **flags, threads=count) as backend:
            ended = run(invocation, backend, backend.work.submit(request))
            check_ended(invocation, ended)
            measure_figures(invocation, ended, also=(THROUGHPUT,))
            jobs.append(ended)
            if count < cores:
                continue
            # Only now: each count was measured again beside those after it.
            for result in (result for job in jobs for result in results_of(backend, job)):
                point = None if result.kernel is None else _point(result.kernel)
                if point is not None:
                    curves[result.task.workload.key].append(point)
    _print(invocation, [(workload, curves[workload.key]) for workload in request.workloads])


def _point(kernel: KernelAnswer) -> Point | None:
    if kernel.instances is None or kernel.calls_per_s is None:
        return None
    return Point(
        threads=kernel.threads,
        kernel=kernel,
        instances=kernel.instances,
        calls_per_s=kernel.calls_per_s,
    )


def fastest(points: Sequence[Point]) -> Point:
    """The kernel whose call takes least, of equals the one of fewer threads."""
    return min(points, key=lambda point: (point.kernel.median_s, point.threads))


def busiest(points: Sequence[Point]) -> Point:
    """The kernel whose instances make most calls a second, of equals that of more threads:
    fewer instances need less memory."""
    return max(points, key=lambda point: (point.calls_per_s, point.threads))


def _print(invocation: Invocation, curves: Sequence[tuple[Workload, list[Point]]]) -> None:
    output = invocation.output
    if output.as_json:
        output.document({"curves": [_document(*curve) for curve in curves]})
        return
    rows = [row for curve in curves for row in _rows(*curve)]
    columns = ("workload", "threads", "kernel", "median", "speed-up", "instances", "calls/s", "")
    output.table(columns, rows, right=("threads", "median", "speed-up", "instances", "calls/s"))


def _rows(workload: Workload, points: Sequence[Point]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for point in points:
        remarks = ["fastest"] if point is fastest(points) else []
        remarks += ["most calls"] if point is busiest(points) else []
        rows.append(
            (
                workload.spec if point is points[0] else "",
                str(point.threads),
                point.kernel.id,
                units.seconds(point.kernel.median_s),
                units.ratio(points[0].kernel.median_s / point.kernel.median_s),
                str(point.instances),
                f"{point.calls_per_s:,.0f}",
                ", ".join(remarks),
            )
        )
    return rows


def _document(workload: Workload, points: Sequence[Point]) -> dict[str, Any]:
    return {
        "workload": documents.workload(workload),
        "points": [
            {
                "threads": point.threads,
                "kernel": point.kernel.id,
                "median_s": point.kernel.median_s,
                "ci95_s": list(point.kernel.ci95_s),
                "instances": point.instances,
                "calls_per_s": point.calls_per_s,
            }
            for point in points
        ],
        "fastest": fastest(points).threads if points else None,
        "throughput": {
            "instances": busiest(points).instances,
            "threads": busiest(points).threads,
        }
        if points
        else None,
    }
