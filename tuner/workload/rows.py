"""Whether an extent counts rows that are computed apart: then any number of rows is
made of kernels for fixed numbers of them.

Rows are the first dimension of every tensor the extent occurs in; a row of each stage
comes from the same row of what it reads, and from tensors without rows. Decided by
comparing two members of a family, never by the operator's name.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.errors import WorkloadError
from tuner.workload.expression import Expression, Stage, Var, reads, walk
from tuner.workload.spec import Portfolio
from tuner.workload.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The ranged extent of a portfolio, and which of its arguments have a row for each."""

    name: str  # of the extent, e.g. "M"
    low: int
    high: int
    ranged: tuple[int, ...]  # places of these arguments, inputs then outputs


def rows_of(portfolio: Portfolio) -> Rows:
    """Raises WorkloadError, naming the extent, for a portfolio that is not of this kind."""
    if len(portfolio.ranges) != 1:
        names = " and ".join(portfolio.ranges)
        raise WorkloadError(
            f"{names} are ranges; a portfolio has one, so give the others as numbers",
            parameter=next(iter(portfolio.ranges)),
        )
    ((name, (low, high)),) = portfolio.ranges.items()
    small, large = (portfolio.workload({name: extent}).expression for extent in (low, high))
    ranged = _ranged(small, large, low, high, name)
    for was, stage in zip(small.stages, large.stages, strict=True):
        _check_stage(was, stage, low, high, ranged, name)
    tensors = [*(tensor.name for tensor in large.inputs), *large.outputs]
    missing = [output for output in large.outputs if output not in ranged]
    if missing:
        raise _refused(name, f"output {missing[0]} has no row for each")
    return Rows(
        name=name,
        low=low,
        high=high,
        ranged=tuple(place for place, tensor in enumerate(tensors) if tensor in ranged),
    )


def member(portfolio: Portfolio, extent: int) -> Workload:
    """The workload with so many rows."""
    return portfolio.workload({next(iter(portfolio.ranges)): extent})


def _ranged(small: Expression, large: Expression, low: int, high: int, name: str) -> set[str]:
    """Names of the tensors whose shape changes with the extent."""
    if len(small.stages) != len(large.stages):
        raise _refused(name, "it decides which stages there are")
    before = (*small.inputs, *(stage.tensor for stage in small.stages))
    after = (*large.inputs, *(stage.tensor for stage in large.stages))
    found = set()
    for one, other in zip(before, after, strict=True):
        if one == other:
            continue
        if (
            not one.shape
            or (one.shape[0], other.shape[0]) != (low, high)
            or one.shape[1:] != other.shape[1:]
        ):
            raise _refused(
                name, f"{other.name} changes with it in another way than by its first dimension"
            )
        found.add(other.name)
    return found


def _check_stage(
    small: Stage, large: Stage, low: int, high: int, ranged: set[str], name: str
) -> None:
    if (
        small.body != large.body
        or small.reduce_axes != large.reduce_axes
        or small.axes[1:] != large.axes[1:]
    ):
        raise _refused(name, f"stage {large.name} computes something else for each")
    rows = large.axes[0].name if large.name in ranged else None
    if rows is not None and (small.axes[0].extent, large.axes[0].extent) != (low, high):
        raise _refused(name, f"the rows of stage {large.name} are not counted by it")
    following = 0
    for read in reads(large.body):
        if read.tensor not in ranged:
            continue
        if rows is None or read.indices[0] != Var(rows):
            raise _refused(
                name, f"stage {large.name} reads other rows of {read.tensor} than its own"
            )
        following += 1
    uses = sum(1 for node in walk(large.body) if rows is not None and node == Var(rows))
    if uses != following:
        raise _refused(name, f"stage {large.name} uses the number of its row")


def _refused(name: str, reason: str) -> WorkloadError:
    message = (
        f"{name} cannot be a range: {reason}. A range counts independent rows, as the M "
        f"of matmul; give one number here"
    )
    return WorkloadError(message, parameter=name)
