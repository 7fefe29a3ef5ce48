"""Special values among a kernel's inputs, and which of its outputs they decide.

NaN, infinities and zeros of both signs; where nothing is computed but orders and choices
are, also the smallest and greatest numbers. Those would overflow or vanish in a kernel's
sums where the float64 reference holds them.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.workload.dtypes import INTEGER_RANGES
from tuner.workload.expression import (
    Binary,
    Cast,
    Expression,
    Read,
    Scalar,
    Select,
    Stage,
    Unary,
    Var,
    reads,
    walk,
)
from tuner.workload.reference import greatest, smallest
from tuner.workload.scalar_operators import BINARY_OPERATORS, UNARY_OPERATORS

_SPREAD, _MOST = 64, 16  # a tensor has a special value in so many elements, but no more
_ORDERING = ("max", "min", "and", "or")
_SIGNS = ("neg", "abs")
_BYTES = ("int8", "uint8")


def are_defined(expression: Expression) -> bool:
    """Whether a float input may be anything: what NaN is as an integer is not defined."""
    nodes = [node for stage in expression.stages for node in walk(stage.body)]
    tensors = expression.tensors
    whole = any(
        isinstance(node, Cast)
        and node.dtype in INTEGER_RANGES
        and any(tensors[read.tensor].dtype not in INTEGER_RANGES for read in reads(node.arg))
        for node in nodes
    )
    stored = any(stage.dtype in INTEGER_RANGES for stage in expression.stages)
    return not whole and not stored and any("float" in tensor.dtype for tensor in expression.inputs)


def only_orders(expression: Expression) -> bool:
    """Whether elements are only compared, chosen and moved, by which no number grows."""
    signed = any(tensor.dtype in INTEGER_RANGES for tensor in expression.inputs)
    return all(
        stage.reducer in (None, "max", "min") and _orders(stage.body, signed=signed)
        for stage in expression.stages
    )


def _orders(node: Scalar, *, signed: bool) -> bool:
    """Of one value. The sign of the least integer cannot be changed."""
    match node:
        case Select(cond=cond, then=then, other=other):
            return all(_orders(part, signed=signed) for part in (cond, then, other))
        case Binary(op=op, lhs=lhs, rhs=rhs):
            ordering = op in _ORDERING or BINARY_OPERATORS[op].is_comparison
            return ordering and _orders(lhs, signed=signed) and _orders(rhs, signed=signed)
        case Unary(op=op, arg=arg):
            ordering = op in ("not", "isnan") or (op in _SIGNS and not signed)
            return ordering and _orders(arg, signed=signed)
        case Cast(dtype=dtype, arg=arg):
            return "float" in dtype and _orders(arg, signed=signed)
        case _:  # indices of reads are computed, but are no elements
            return True


def sprinkled(
    rng: np.random.Generator, values: NDArray[Any], *, dtype: str, extremes: bool
) -> NDArray[Any]:
    """A float tensor's values with special ones at random places, none of them twice in a
    row of kinds. `extremes`: also the smallest and greatest numbers."""
    kinds = [math.nan, math.inf, -math.inf, -0.0, 0.0]
    if extremes:
        kinds += [sign * size(dtype) for size in (smallest, greatest) for sign in (1, -1)]
    count = min(values.size, max(1, min(_MOST, values.size // _SPREAD)))
    result = values.copy()
    places = rng.choice(values.size, count, replace=False)
    order = np.tile(rng.permutation(np.array(kinds)), -(-count // len(kinds)))
    with np.errstate(all="ignore"):
        result.reshape(-1)[places] = order[:count].astype(values.dtype)
    return result


def undecided(expression: Expression, reference: NDArray[Any]) -> NDArray[np.bool_]:
    """The elements of an output that may be anything, though the reference has a value.

    A kernel may leave out terms of a sum that padding or a condition makes zero, and with
    them the NaN that zero times an infinity is. And what vanishes in float32 but not in
    float64 makes NaN, not an infinity, of an infinity. The sum of a group that a factor
    scales may be NaN where each of its terms, scaled, is an infinity, and the other way
    round.
    """
    nodes = [node for stage in expression.stages for node in walk(stage.body)]
    reduces = any(stage.reducer in ("sum", "prod") for stage in expression.stages)
    conditional = reduces and any(_conditional(node) for node in nodes)
    narrow = {tensor.name for tensor in expression.tensors.values() if tensor.dtype in _BYTES}
    if conditional or any(_has_groups(stage, narrow) for stage in expression.stages):
        return np.asarray(~np.isfinite(reference))
    if any(_vanishes(node) for node in nodes):
        return np.asarray(np.isinf(reference))
    return np.zeros(reference.shape, np.bool_)


def _has_groups(stage: Stage, narrow: Collection[str]) -> bool:
    """Whether a sum reads elements that stay the same for groups of its terms: in divisions
    of an axis, or of bytes, the tensors in `narrow`, along an axis."""
    summed = {axis.name for axis in stage.reduce_axes if axis.extent > 1}
    if stage.reducer != "sum":
        return False
    sources = tuple(reads(stage.body))
    moving = [{part.name for part in walk(read) if isinstance(part, Var)} for read in sources]
    if any(read.tensor in narrow for read in sources) and any(summed - axes for axes in moving):
        return True
    return any(
        isinstance(node, Binary)
        and node.op == "floordiv"
        and any(isinstance(part, Var) and part.name in summed for part in walk(node.lhs))
        for read in reads(stage.body)
        for index in read.indices
        for node in walk(index)
    )


def _conditional(node: Scalar) -> bool:
    match node:
        case Select():
            return True
        case Read(pad=pad):
            return pad is not None
        case Binary(op=op):
            return BINARY_OPERATORS[op].is_comparison
        case _:
            return False


def _vanishes(node: Scalar) -> bool:
    match node:
        case Unary(op=op):
            return UNARY_OPERATORS[op].is_function
        case Binary(op=op):
            return op == "div" or BINARY_OPERATORS[op].is_function
        case _:
            return False
