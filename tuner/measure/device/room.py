"""What a device has room for, told before anything is sent: else each trial would fail of it."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.errors import UsageError
from tuner.measure.assignment import Lane
from tuner.measure.device.protocol import MAX_BLOB
from tuner.measure.problem import Problem
from tuner.workload.workload import Workload

SHARE = 4  # an agent keeps contents in this part of its memory (agent.c)
WAY_OUT = "choose smaller extents, or tune on the machine itself, with tuner installed there"


def check_room(workload: Workload, lanes: Sequence[Lane]) -> None:
    """Raises UsageError for tensors that are too large for a device among the lanes.

    Each may have MAX_BLOB bytes. Of the inputs a device keeps one of each kind that a
    promotion checks.
    """
    devices = [(lane.name, lane.device.memory_bytes) for lane in lanes if lane.device is not None]
    if not devices:
        return
    expression = workload.expression
    tensors = [*expression.inputs, *map(expression.tensor, expression.outputs)]
    largest = max(tensors, key=lambda tensor: tensor.nbytes)
    if largest.nbytes > MAX_BLOB:
        raise UsageError(
            f"{workload.spec}: {largest.name} has {largest.nbytes:,} bytes, and a device takes "
            f"tensors of {MAX_BLOB:,} at most; {WAY_OUT}"
        )
    kinds = len(Problem(workload, 0).promotion_cases)
    kept = kinds * sum(tensor.nbytes for tensor in expression.inputs)
    for name, memory_bytes in devices:
        if memory_bytes and kept > memory_bytes // SHARE:
            raise UsageError(
                f"{workload.spec}: its inputs in {kinds} kinds have {kept:,} bytes, and {name} "
                f"keeps {memory_bytes // SHARE:,}, a quarter of its memory; {WAY_OUT}"
            )
