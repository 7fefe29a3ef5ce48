"""How recorded tensors lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast, get_args

from tuner.models.errors import ModelRefused
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.movement import transpose
from tuner.models.operators.values import Value
from tuner.trace.record import Argument
from tuner.workload.dtypes import DType


def order_in_memory(shape: Sequence[int], strides: Sequence[int] | None) -> list[int]:
    """The dimensions, the slowest first, of a tensor without gaps. Raises ModelRefused."""
    if strides is not None:
        order = sorted(range(len(shape)), key=lambda axis: (-strides[axis], axis))
        following = 1
        for axis in reversed(order):
            if shape[axis] != 1 and strides[axis] != following:
                break
            following *= shape[axis]
        else:
            return order
    raise ModelRefused(f"an argument of shape {list(shape)} lies in memory with gaps")


def stored_input(builder: GraphBuilder, argument: Argument) -> Value:
    """A recorded tensor as an input that lies in memory as it did. Raises ModelRefused."""
    shape, dtype = argument["shape"], dtype_named(argument["dtype"])
    if 0 in shape:
        raise ModelRefused(f"an argument of shape {list(shape)} has no elements")
    order = order_in_memory(shape, argument["strides"])
    stored = builder.input([shape[axis] for axis in order], dtype)
    return transpose(stored, sorted(range(len(order)), key=lambda axis: order[axis]))


def dtype_named(name: Any) -> DType:
    """Raises ModelRefused for one that expressions do not have."""
    if name not in get_args(DType):
        raise ModelRefused(f"an argument is {name}; kernels take {', '.join(get_args(DType))}")
    return cast(DType, name)
