"""Where along the streamed axis terms of a tile of rows count: causal masks and windows.

Conditions that compare linear forms are solved for the streamed axis, at the corner of
the tile where they hold if they hold anywhere.
"""

from __future__ import annotations

from tuner.spaces.cpu.stream_plan import StreamPlan
from tuner.spaces.program.tiles import add, constant, times
from tuner.workload.affine import linear
from tuner.workload.expression import Binary, Scalar


def live_range(plan: StreamPlan) -> tuple[Scalar | None, Scalar | None]:
    """The first point and the end of what counts for a task; None where that is all."""
    first: Scalar | None = None
    end: Scalar | None = None
    stream = plan.group.stream
    for condition in plan.group.live_conditions:
        assert isinstance(condition, Binary)
        lhs, rhs = linear(condition.lhs), linear(condition.rhs)
        assert lhs is not None and rhs is not None
        # The condition as: coefficients times iterators, plus a constant, at most 0.
        sign = 1 if condition.op in ("le", "lt") else -1
        names = dict.fromkeys((*lhs.coefficients, *rhs.coefficients))
        terms = {name: sign * (lhs.coefficient(name) - rhs.coefficient(name)) for name in names}
        limit = sign * (lhs.constant - rhs.constant) + int(condition.op in ("lt", "gt"))
        step = terms.pop(stream.name, 0)
        if step == 0:
            continue
        # Least value that the rest takes in the tile.
        rest: Scalar = constant(limit)
        for name, factor in terms.items():
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
