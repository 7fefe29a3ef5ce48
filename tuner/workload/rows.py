"""Independent rows: whether a portfolio can split a ranged extent among kernels.

An extent counts independent rows if it is the first dimension of every tensor in which
it occurs, and if a row of each stage depends on the same row of what it reads and on
tensors without rows. Then any number of rows is computed by kernels for fixed numbers
of rows. Two members of the family are compared; the operator's name does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.errors import WorkloadError
from tuner.workload.expression import Expression, Stage, Var, reads, walk
from tuner.workload.spec import Portfolio
from tuner.workload.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedExtent:
    """An extent that a kernel of its own serves, and the shapes that go with it."""

    extent: int
    shapes: tuple[tuple[int, ...], ...]  # of all arguments, inputs then outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The ranged extent of a portfolio, and the arguments that have such rows.

    With `listed` only these extents are taken, ascending from `low` to `high`. They may
    be any dimension of an argument, and `shown` is one of an input that equals them.
    """

    name: str  # of the extent, e.g. "M"
    low: int
    high: int
    ranged: tuple[int, ...]  # places of these arguments, inputs then outputs
    listed: tuple[ListedExtent, ...] = ()
    shown: tuple[int, int] = (0, 0)  # place of the argument, and dimension

    @property
    def names(self) -> str:
        """The listed extents as text."""
        return ", ".join(str(listed.extent) for listed in self.listed)


def rows_of(portfolio: Portfolio) -> Rows:
    """The ranged extent of a portfolio.

    Raises `WorkloadError` naming the extent if it does not count independent rows.
    """
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
    """The workload of a portfolio for a number of rows."""
    return portfolio.workload({next(iter(portfolio.ranges)): extent})


def _ranged(small: Expression, large: Expression, low: int, high: int, name: str) -> set[str]:
    """Names of the tensors whose shape depends on the extent."""
    if len(small.stages) != len(large.stages):
        raise _refused(name, "it decides which stages there are")
    before = (*small.inputs, *(stage.tensor for stage in small.stages))
    after = (*large.inputs, *(stage.tensor for stage in large.stages))
    ranged = set()
    for short, long in zip(before, after, strict=True):
        if short == long:
            continue
        if (
            not short.shape
            or (short.shape[0], long.shape[0]) != (low, high)
            or short.shape[1:] != long.shape[1:]
        ):
            raise _refused(
                name, f"{long.name} changes with it in another way than by its first dimension"
            )
        ranged.add(long.name)
    return ranged


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
