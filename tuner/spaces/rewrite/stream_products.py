"""The operands of a stream group's two products, where matrix units can take them.

The first product is a sum of products of an element that moves with the streamed axis and
one that does not. The last sum adds products of exponentials and a factor.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tuner.spaces.rewrite.access import access
from tuner.spaces.rewrite.stream_group import StreamGroup
from tuner.workload.affine import linear
from tuner.workload.dtypes import DType
from tuner.workload.expression import Axis, Binary, Cast, Read, Scalar, Var, walk


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamProducts:
    """Reads of bfloat16, in the group's iterators."""

    depth: Axis  # that the first product is summed over
    resident: Read  # its operand that does not move with the streamed axis
    streamed: Read  # its other operand, contiguous along the depth
    factor: Read  # of the last sum, contiguous along its column
    factor_rows: tuple[Axis, ...]  # the rows with which the factor moves


def stream_products(
    group: StreamGroup,
    vector: Axis,
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, DType],
    exact: Collection[str],
) -> StreamProducts | None:
    """None where an operand is of another dtype, padded, gathered, or lies otherwise.

    `exact` has the tensors that lie in memory as they are declared.
    """
    product, last, stream = group.product, group.sums[-1], group.stream
    if product is None or last.factor is None or len(group.sums) != 2:
        return None
    if group.sums[0].factor is not None or len(product.reduce_axes) != 1 or len(last.columns) != 1:
        return None
    (depth,), (column,) = product.reduce_axes, last.columns
    match product.body:
        case Binary(op="mul", lhs=Cast(arg=Read() as left), rhs=Cast(arg=Read() as right)):
            pass
        case _:
            return None
    factor = _narrow(last.factor)
    if factor is None:
        return None
    extents = {axis.name: axis.extent for axis in (*group.rows, stream, depth, column)}
    moves = {read: access(read, shapes[read.tensor], extents) for read in (left, right, factor)}
    if any(
        each.padded
        or each.gathered
        or dtypes[read.tensor] != "bfloat16"
        or read.tensor not in exact
        for read, each in moves.items()
    ):
        return None
    streamed, resident = sorted((left, right), key=lambda r: stream.name not in moves[r].axes)
    if stream.name in moves[resident].axes or vector.name not in moves[resident].axes:
        return None
    for read, along in ((streamed, depth), (factor, column)):
        shape = shapes[read.tensor]
        if _stride(read, along, shape) != 1 or not _stride(read, stream, shape):
            return None
        if vector.name in moves[read].axes:
            return None
    return StreamProducts(
        depth=depth,
        resident=resident,
        streamed=streamed,
        factor=factor,
        factor_rows=tuple(axis for axis in group.rows if axis.name in moves[factor].axes),
    )


def _narrow(factor: Scalar) -> Read | None:
    """What a conversion reads."""
    return factor.arg if isinstance(factor, Cast) and isinstance(factor.arg, Read) else None


def _stride(read: Read, axis: Axis, shape: Sequence[int]) -> int | None:
    """Elements from one step of the axis to the next, whatever the other axes do; None where
    that is not constant."""
    total, step = 0, 1
    for index, extent in zip(reversed(read.indices), reversed(shape), strict=True):
        if any(isinstance(node, Var) and node.name == axis.name for node in walk(index)):
            form = linear(index)
            if form is None:
                return None
            total += form.coefficient(axis.name) * step
        step *= extent
    return total
