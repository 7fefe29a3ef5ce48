"""Sums of products of two reads, which tensor cores may take."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.spaces.rewrite.access import Access, access
from tuner.workload.expression import Binary, Cast, Read, Scalar, Stage


def product_operands(
    stage: Stage, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Access, Access] | None:
    """The two reads of a sum of products, as they are written; None of any other stage.

    Casts around the reads are looked through.
    """
    body = stage.body
    if stage.reducer != "sum" or not isinstance(body, Binary) or body.op != "mul":
        return None
    left, right = _read_below_casts(body.lhs), _read_below_casts(body.rhs)
    if not stage.reduce_axes or left is None or right is None:
        return None
    return (
        access(left, shapes[left.tensor], stage.extents),
        access(right, shapes[right.tensor], stage.extents),
    )


def _read_below_casts(node: Scalar) -> Read | None:
    while isinstance(node, Cast):
        node = node.arg
    return node if isinstance(node, Read) else None
