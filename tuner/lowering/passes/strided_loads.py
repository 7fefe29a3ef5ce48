"""Vector loads with a small stride, made of contiguous loads and shuffles.

TVM's code generator loads such a vector element by element and inserts the elements one
by one. This pass, the last before it, uses as many contiguous loads as the stride, and
one shuffle less. For every second element of 32 that is two loads and a shuffle instead
of 16 loads and 15 insertions. Nothing is read beyond the vector's first and last
elements.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

from tuner.lowering.passes.substitution import with_replaced
from tuner.spaces.program.program import LARGEST_SHUFFLED_STRIDE

FEWEST_LANES = 4


def shuffle_strided_loads(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with vector loads of small strides made of contiguous loads and shuffles."""
    return with_replaced(mod, tvm.ir.TensorLoad, _replaced)


def _replaced(load: tvm.ir.TensorLoad) -> tvm.ir.PrimExpr:
    """The load by contiguous loads and shuffles, or as it is where its stride does not suit."""
    index = load.indices[-1]
    if (
        not isinstance(index, tirx.Ramp)
        or not isinstance(index.stride, tirx.IntImm)
        or not isinstance(index.lanes, tirx.IntImm)
    ):
        return load
    stride, lanes = int(index.stride), int(index.lanes)
    if not 2 <= stride <= LARGEST_SHUFFLED_STRIDE or lanes < FEWEST_LANES:
        return load
    span = stride * (lanes - 1) + 1
    starts = [min(number * lanes, span - lanes) for number in range(stride)]
    rows = [_row(load, index.base, start, lanes) for start in starts]
    vector = rows[0]
    for number in range(1, stride):
        order = []
        for lane, place in enumerate(range(0, span, stride)):
            # An element of an earlier row is in the vector already: at its own place in the
            # first row, else in its lane. The others come from this row, or from a later
            # one, which then replaces them.
            if place < number * lanes:
                order.append(place if number == 1 else lane)
            else:
                order.append(lanes + min(place - starts[number], lanes - 1))
        vector = tirx.Shuffle(
            [vector, rows[number]], [tirx.const(position, "int32") for position in order]
        )
    return vector


def _row(load: tvm.ir.TensorLoad, base: Any, start: int, lanes: int) -> tvm.ir.TensorLoad:
    """The contiguous load of `lanes` elements that begins `start` elements after `base`."""
    first = base + tirx.const(start, str(base.ty)) if start else base
    return tirx.BufferLoad(
        load.source, [*load.indices[:-1], tirx.Ramp(first, tirx.const(1, str(base.ty)), lanes)]
    )
