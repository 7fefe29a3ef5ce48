"""`tuner advise`: which extents near those of a workload are faster, measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner import units
from tuner.cli.invocation import Invocation
from tuner.cli.results import conclude, results_of
from tuner.cli.tune import Seconds, Trials
from tuner.cli.workloads import TargetText, Threads, read_workload
from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.api.schemas import KernelAnswer
    from tuner.workload.nearby import Nearby
    from tuner.workload.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A changed workload's kernel beside that of the workload which was asked about."""

    nearby: Nearby
    kernel: KernelAnswer
    time: float  # of the call, as a multiple
    per_operation: float  # time by operations, as a multiple

    def sure(self, asked: KernelAnswer) -> bool:
        """Whether the times' intervals do not overlap."""
        return self.kernel.ci95_s[1] < asked.ci95_s[0] or self.kernel.ci95_s[0] > asked.ci95_s[1]


def advise(
    context: typer.Context,
    spec: Annotated[
        str, typer.Argument(metavar="SPEC", help="a workload, such as matmul:M=512,N=500,K=512")
    ],
    extents: Annotated[
        str, typer.Option("--extents", metavar="NAME,...", help="those to change; default: all")
    ] = "",
    trials: Trials = None,
    seconds: Seconds = None,
    target: TargetText = None,
    threads: Threads = None,
) -> None:
    """Tunes a workload, and again with extents changed a little. Says which are faster for
    each operation, and which are faster although they compute more."""
    from tuner.cli.backend.roles import JobRequest
    from tuner.cli.progress import TuningDisplay
    from tuner.workload.nearby import nearby

    invocation = Invocation.of(context)
    asked = read_workload(spec, None, None)
    changed = nearby(asked, [name.strip() for name in extents.split(",") if name.strip()])
    if not changed:
        raise UsageError(f"{spec} has no extents near it that differ by 15% or less; tune it as is")
    workloads = (asked, *(each.workload for each in changed))
    flags = {"trials": trials, "seconds": seconds, "target": target, "threads": threads}
    with invocation.backend(create=True, **flags) as backend:
        job = backend.work.submit(JobRequest(workloads=workloads, improve=False))
        with TuningDisplay(invocation.output.stderr, quiet=invocation.output.quiet) as display:
            display.note(f"job {job.id}")
            ended = backend.work.run(job.id, display)
        kernels = {result.task.workload.key: result.kernel for result in results_of(backend, ended)}
        first = kernels[asked.key]
        if ended.state != "succeeded" or first is None:
            conclude(invocation, backend, ended)
            return
    _print(invocation, asked, first, _compared(asked, first, changed, kernels))


def _compared(
    asked: Workload,
    first: KernelAnswer,
    changed: Sequence[Nearby],
    kernels: Mapping[str, KernelAnswer | None],
) -> list[Compared]:
    """The fastest for each operation first."""
    compared = []
    for each in changed:
        kernel = kernels.get(each.workload.key)
        if kernel is None:
            continue
        time = kernel.median_s / first.median_s
        compared.append(
            Compared(
                nearby=each,
                kernel=kernel,
                time=time,
                per_operation=time * _operations(asked) / _operations(each.workload),
            )
        )
    return sorted(compared, key=lambda each: each.per_operation)


def _operations(workload: Workload) -> int:
    """Arithmetic, or the elements of the outputs where there is none."""
    expression = workload.expression
    return expression.flops or sum(
        prod(expression.tensor(name).shape) for name in expression.outputs
    )


def _print(
    invocation: Invocation, asked: Workload, first: KernelAnswer, compared: Sequence[Compared]
) -> None:
    output = invocation.output
    if output.as_json:
        output.document(
            {
                "asked": {"workload": asked.spec, "kernel": first.id, "median_s": first.median_s},
                "nearby": [_document(each, first) for each in compared],
            }
        )
        return
    output.line(f"{asked.spec}: {units.seconds(first.median_s)}")
    rows = [_row(each, first) for each in compared]
    columns = ("change", "kernel", "median", "time", "per operation", "")
    output.table(columns, rows, right=columns[2:5])


def _row(each: Compared, first: KernelAnswer) -> tuple[str, ...]:
    return (
        f"{each.nearby.parameter}={each.nearby.extent}",
        each.kernel.id,
        units.seconds(each.kernel.median_s),
        units.ratio(each.time),
        units.ratio(each.per_operation),
        _remark(each, first),
    )


def _remark(each: Compared, first: KernelAnswer) -> str:
    if each.kernel.disturbed or first.disturbed:
        return "disturbed"
    if not each.sure(first):
        return "as fast"
    return "faster" if each.time < 1 else "slower"


def _document(each: Compared, first: KernelAnswer) -> dict[str, Any]:
    return {
        "workload": each.nearby.workload.spec,
        "parameter": each.nearby.parameter,
        "extent": each.nearby.extent,
        "kernel": each.kernel.id,
        "median_s": each.kernel.median_s,
        "time_ratio": each.time,
        "per_operation_ratio": each.per_operation,
        "significant": each.sure(first),
        "disturbed": each.kernel.disturbed,
    }
