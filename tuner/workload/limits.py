"""Budgets every workload keeps, checked on shapes alone before anything large is made."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.errors import WorkloadError
from tuner.workload.expression import Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    tensors: int = 16  # inputs, intermediates and outputs together
    nbytes: int = 8 << 30  # of all of them together
    flops: int = 10**14
    dimensions: int = 8  # of one tensor; iterators of one stage are at most twice as many
    extent: int = 2**31 - 1  # of one iterator


LIMITS = Limits()


def check_limits(expression: Expression, limits: Limits = LIMITS) -> None:
    """Raises `WorkloadError` naming the figure and its limit."""
    tensors = [*expression.inputs, *(stage.tensor for stage in expression.stages)]
    if len(tensors) > limits.tensors:
        raise WorkloadError(
            f"{len(tensors)} tensors, the limit is {limits.tensors}; split the kernel into several"
        )
    for tensor in tensors:
        if len(tensor.shape) > limits.dimensions:
            raise WorkloadError(
                f"{tensor.name} has {len(tensor.shape)} dimensions, the limit is "
                f"{limits.dimensions}"
            )
    for stage in expression.stages:
        for axis in (*stage.axes, *stage.reduce_axes):
            if not 0 < axis.extent <= limits.extent:
                raise WorkloadError(
                    f"iterator {axis.name} of {stage.name} has extent {axis.extent}; extents "
                    f"are 1 to {limits.extent}"
                )
        if len(stage.reduce_axes) > limits.dimensions:
            raise WorkloadError(
                f"stage {stage.name} reduces over {len(stage.reduce_axes)} iterators, the limit "
                f"is {limits.dimensions}"
            )
    nbytes = sum(tensor.nbytes for tensor in tensors)
    if nbytes > limits.nbytes:
        raise WorkloadError(
            f"its tensors, intermediates included, take {nbytes / 2**30:.1f} GiB, "
            f"the limit is {limits.nbytes / 2**30:.0f} GiB; use smaller extents"
        )
    if expression.flops > limits.flops:
        raise WorkloadError(
            f"it takes {expression.flops:.3g} operations, the limit is {limits.flops:.0e}; use "
            f"smaller extents"
        )
