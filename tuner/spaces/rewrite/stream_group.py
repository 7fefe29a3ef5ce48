"""The stages of rows that stream by: running sums of exponentials, found by `streaming`."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.workload.dtypes import DType
from tuner.workload.expression import Axis, Read, Scalar, Stage, Var, reads, walk


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSum:
    """A sum over the streamed axis of `exp(f - m)`, or of its products with a factor."""

    name: str  # of the stage that it replaces
    columns: tuple[Axis, ...]  # axes beside the rows
    factor: Scalar | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamGroup:
    """Reductions along one axis of shared rows, which read it part by part.

    All scalars are in terms of the rows, the streamed axis, and the columns of a sum.
    """

    rows: tuple[Axis, ...]
    stream: Axis
    product: Stage | None  # a sum at each point of a row, which f reads at that point; or none
    value: Scalar  # f
    peak: str  # the stage that is the maximum of f
    sums: tuple[RunningSum, ...]  # the last one has the columns
    # the result: from the sums, and the maximum where it is read, when the row is through
    output: Stage
    dtype: DType  # in which the sums are carried
    # comparisons of rows and streamed axis outside of which no term counts
    live_conditions: tuple[Scalar, ...] = ()

    @property
    def name(self) -> str:
        return self.output.name

    @property
    def columns(self) -> tuple[Axis, ...]:
        """The axes of the output that are no rows."""
        return self.sums[-1].columns

    @property
    def sources(self) -> frozenset[str]:
        """Names of the tensors that the group reads from outside."""
        scalars = [self.value, self.output.body]
        scalars += [running.factor for running in self.sums if running.factor is not None]
        own = {self.peak, *(running.name for running in self.sums)}
        if self.product is not None:
            scalars.append(self.product.body)
            own.add(self.product.name)
        return frozenset(read.tensor for scalar in scalars for read in reads(scalar)) - own

    @property
    def shared_rows(self) -> tuple[Axis, ...]:
        """The axes of the rows along which no operand moves that moves along the streamed one.

        Rows along them use each element of those operands.
        """
        scalars = [running.factor for running in self.sums if running.factor is not None]
        scalars += [] if self.product is None else [self.product.body]
        moving = [_moving(read) for scalar in scalars for read in reads(scalar)]
        streamed = [names for names in moving if self.stream.name in names]
        return tuple(
            axis
            for axis in self.rows
            if axis.extent > 1 and not any(axis.name in names for names in streamed)
        )

    def place(self, *axes: Axis) -> tuple[Scalar, ...]:
        """The indices of something that has the rows and these axes."""
        return tuple(Var(axis.name) for axis in (*self.rows, *axes))

    def total(self, running: RunningSum) -> Read:
        """What the output reads for a sum."""
        return Read(running.name, self.place(*running.columns))


def _moving(read: Read) -> set[str]:
    return {node.name for index in read.indices for node in walk(index) if isinstance(node, Var)}
