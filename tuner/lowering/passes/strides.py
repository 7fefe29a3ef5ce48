"""Vectors of elements a few places apart: neighbours loaded whole, the wanted ones
picked by shuffles.

TVM's code generator loads such a vector element by element and puts it together lane by
lane. This pass, the last one before it, replaces the loads by as many loads of
neighbours as the distance, and one shuffle less: for every second element of 32, two
loads and a shuffle instead of 16 loads and 15 insertions. Nothing is read beyond the
vector's first and last element, so that what lay inside a buffer still does.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm_ffi import structural_map

from tuner.spaces.program.program import LARGEST_SHUFFLED_STRIDE

FEWEST_LANES = 4


def pick_neighbours(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with vector loads of small strides made of contiguous loads and shuffles."""
    functions = {
        name: structural_map(function, (tvm.ir.TensorLoad, _replaced))
        for name, function in mod.functions.items()
    }
    return tvm.IRModule(functions, attrs=mod.attrs)


def _replaced(load: tvm.ir.TensorLoad) -> tvm.ir.PrimExpr:
    at = load.indices[-1]
    if (
        not isinstance(at, tirx.Ramp)
        or not isinstance(at.stride, tirx.IntImm)
        or not isinstance(at.lanes, tirx.IntImm)
    ):
        return load
    apart, lanes = int(at.stride), int(at.lanes)
    if not 2 <= apart <= LARGEST_SHUFFLED_STRIDE or lanes < FEWEST_LANES:
        return load
    span = apart * (lanes - 1) + 1
    starts = [min(number * lanes, span - lanes) for number in range(apart)]
    rows = [_row(load, at.base, start, lanes) for start in starts]
    found = rows[0]
    for number in range(1, apart):
        order = []
        for lane, place in enumerate(range(0, span, apart)):
            if (
                place < number * lanes
            ):  # found already: in the first row where it lies there, else in its lane
                order.append(place if number == 1 else lane)
            else:  # of this row, or of a later one, which replaces it
                order.append(lanes + min(place - starts[number], lanes - 1))
        found = tirx.Shuffle([found, rows[number]], [tirx.const(one, "int32") for one in order])
    return found


def _row(load: tvm.ir.TensorLoad, base: Any, start: int, lanes: int) -> tvm.ir.TensorLoad:
    first = base + tirx.const(start, str(base.ty)) if start else base
    return tirx.BufferLoad(
        load.source, [*load.indices[:-1], tirx.Ramp(first, tirx.const(1, str(base.ty)), lanes)]
    )
