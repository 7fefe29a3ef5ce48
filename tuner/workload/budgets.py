"""Upper bounds on the size of a workload, checked on shapes before anything is allocated."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.errors import WorkloadError
from tuner.workload.expression import Expression
from tuner.workload.slices import sliced


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """The largest workload that is accepted."""

    tensors: int = 16  # inputs, intermediates and outputs together
    nbytes: int = 8 << 30  # of all of them together, of some rows at a time where that is enough
    flops: int = 10**14
    dimensions: int = 8  # of one tensor; iterators of one stage are at most twice as many
    extent: int = 2**31 - 1  # of one iterator


BUDGETS = Budgets()


def check_budgets(expression: Expression) -> None:
    """Refuse an expression that exceeds a budget.

    Raises `WorkloadError` naming the figure and its limit.
    """
    tensors = [*expression.inputs, *(stage.tensor for stage in expression.stages)]
    if len(tensors) > BUDGETS.tensors:
        raise WorkloadError(
            f"{len(tensors)} tensors, the limit is {BUDGETS.tensors}; split the kernel into several"
        )
    for tensor in tensors:
        if len(tensor.shape) > BUDGETS.dimensions:
            raise WorkloadError(
                f"{tensor.name} has {len(tensor.shape)} dimensions, the limit is "
                f"{BUDGETS.dimensions}"
            )
    for stage in expression.stages:
        for axis in (*stage.axes, *stage.reduce_axes):
            if not 0 < axis.extent <= BUDGETS.extent:
                raise WorkloadError(
                    f"iterator {axis.name} of {stage.name} has extent {axis.extent}; extents "
                    f"are 1 to {BUDGETS.extent}"
                )
        if len(stage.reduce_axes) > BUDGETS.dimensions:
            raise WorkloadError(
                f"stage {stage.name} reduces over {len(stage.reduce_axes)} iterators, the limit "
                f"is {BUDGETS.dimensions}"
            )
    nbytes = stated_bytes(expression)
    if nbytes > BUDGETS.nbytes and needed_bytes(expression) > BUDGETS.nbytes:
        raise WorkloadError(
            f"its tensors, intermediates included, take {nbytes / 2**30:.1f} GiB, "
            f"the limit is {BUDGETS.nbytes / 2**30:.0f} GiB; use smaller extents"
        )
    if expression.flops > BUDGETS.flops:
        raise WorkloadError(
            f"it takes {expression.flops:.3g} operations, the limit is {BUDGETS.flops:.0e}; use "
            f"smaller extents"
        )


def stated_bytes(expression: Expression) -> int:
    """Bytes of all tensors, intermediates included."""
    return sum(tensor.nbytes for tensor in expression.tensors.values())


def needed_bytes(expression: Expression) -> int:
    """Bytes of inputs and outputs, and of intermediates as far as they are needed at once:
    a row of those that can be computed row by row."""
    parts = sliced(expression)
    if parts is None:
        return stated_bytes(expression)
    between = (s for s in expression.stages if s.name not in expression.outputs)
    rows = (s.tensor.nbytes // (parts.extent if s.name in parts.axes else 1) for s in between)
    return expression.nbytes + sum(rows)
