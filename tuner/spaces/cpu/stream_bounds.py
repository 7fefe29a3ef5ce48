"""Where along the streamed axis terms of a tile of rows count: causal masks and windows.

Conditions that compare linear forms are solved for the streamed axis, at the corner of
the tile where they hold if they hold anywhere.
"""

from __future__ import annotations

from tuner.spaces.cpu.split_plan import SplitPlan
from tuner.spaces.cpu.stream_plan import StreamPlan
from tuner.spaces.program.tiles import add, constant, times
from tuner.spaces.rewrite.predicates import at_most_zero
from tuner.workload.expression import Binary, Scalar


def live_range(plan: StreamPlan | SplitPlan) -> tuple[Scalar | None, Scalar | None]:
    """The first point and the end of what counts for a task; None where that is all."""
    first: Scalar | None = None
    end: Scalar | None = None
    stream = plan.group.stream
    for condition in plan.group.live_conditions:
        difference = at_most_zero(condition)
        step = 0 if difference is None else difference.coefficient(stream.name)
        if difference is None or step == 0:
            continue
        # Least value that the rest takes in the tile.
        rest: Scalar = constant(difference.constant)
        for name, factor in difference.coefficients.items():
            if name == stream.name:
                continue
            corner = plan.rows - 1 if factor < 0 and name == plan.vector.name else 0
            rest = add(rest, times(plan.row(constant(corner))[name], factor))
        if step > 0:  # up to -rest / step
            last = Binary("floordiv", Binary("sub", constant(0), rest), constant(step))
            bound: Scalar = add(last, constant(1))
            end = bound if end is None else Binary("min", end, bound)
        else:  # from rest / -step, rounded up
            bound = Binary("floordiv", add(rest, constant(-step - 1)), constant(-step))
            bound = Binary("max", bound, constant(0))
            first = bound if first is None else Binary("max", first, bound)
    if end is not None:
        end = Binary("max", Binary("min", end, constant(stream.extent)), constant(0))
    return first, end
