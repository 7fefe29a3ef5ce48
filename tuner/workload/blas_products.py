"""Sums of products of two affine reads, which BLAS computes far faster than element by element."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from tuner.workload.arrays import carrier, of_bits
from tuner.workload.dual import Dual, Tensors, finite_size, size_of
from tuner.workload.expression import Binary, Bitcast, Cast, Const, Read, Scalar, Stage
from tuner.workload.windows import Array, Contraction, window


def product_by_blas(stage: Stage, tensors: Tensors, *, track: bool) -> Dual | None:
    """A sum of products of two affine reads, computed by BLAS; None for anything else.

    Of a tensor whose bits stand for other numbers all elements become these first.
    """
    if stage.reducer != "sum" or not isinstance(stage.body, Binary) or stage.body.op != "mul":
        return None
    factors = [_without_widening_casts(stage.body.lhs), _without_widening_casts(stage.body.rhs)]
    for place, factor in enumerate(factors):
        if isinstance(factor, Bitcast) and isinstance(factor.arg, Read):
            factors[place], tensors = _decoded(factor, factor.arg, tensors)
    extents = stage.extents
    kept, reduced = (
        tuple(axis.name for axis in stage.axes),
        tuple(axis.name for axis in stage.reduce_axes),
    )
    if any(
        not isinstance(factor, Read) or tensors[factor.tensor].value.dtype == np.bool_
        for factor in factors
    ):
        return None
    # A conversion of uint32 or uint64 may change the value.
    if factors != [stage.body.lhs, stage.body.rhs] and any(
        isinstance(factor, Read) and tensors[factor.tensor].value.dtype.kind == "u"
        for factor in factors
    ):
        return None

    pair = [factor for factor in factors if isinstance(factor, Read)]

    def contracted(reads: list[Read], arrays: list[Array]) -> Array | None:
        left, right = (
            window(read, array, kept + reduced, extents)
            for read, array in zip(reads, arrays, strict=True)
        )
        if left is None or right is None:
            return None
        return Contraction(
            left=left, right=right, kept=kept, reduced=reduced, extents=extents
        ).result()

    duals = [tensors[factor.tensor] for factor in pair]
    values = [dual.value for dual in duals]
    if all(value.dtype.kind != "f" for value in values):
        values = [value.astype(carrier(stage.accumulator), copy=False) for value in values]
    value = _product(pair, values, prod(extents[name] for name in reduced), contracted)
    if value is None or not track:
        return None if value is None else Dual(value)
    sizes, bare = (
        [size_of(factor) for factor in pair],
        [finite_size(dual.value) for dual in duals],
    )
    weighted = [which for which in (0, 1) if duals[which].magnitude is not None]
    parts = [
        contracted(sizes, [duals[side].size if side == which else bare[side] for side in (0, 1)])
        for which in weighted
    ]
    total = parts[0] if len(parts) == 1 else contracted(sizes, bare)
    if len(parts) == 2 and parts[0] is not None and parts[1] is not None and total is not None:
        total = parts[0] + parts[1] - total
    return Dual(value, total)


def _without_widening_casts(node: Scalar) -> Scalar:
    """The node below casts that change no value.

    Those are casts to float32 and float64, which the reference does not round, and to wider
    integers.
    """
    while (
        isinstance(node, Cast)
        and node.dtype in ("float32", "float64", "int32", "int64")
        and isinstance(node.arg, Read | Cast | Bitcast)
    ):
        node = node.arg
    return node


def _decoded(factor: Bitcast, read: Read, tensors: Tensors) -> tuple[Read, Tensors]:
    """A read of the numbers that a tensor's bits stand for, and the tensors with these."""
    name = f"{read.tensor} as {factor.dtype}"
    pad = None
    if read.pad is not None:
        bits = np.asarray(read.pad.value)
        pad = Const(float(of_bits(bits, factor)), "float64")
    numbers = Dual(of_bits(tensors[read.tensor].value, factor))
    return Read(name, read.indices, pad), {**tensors, name: numbers}


def _product(
    pair: list[Read],
    arrays: list[Array],
    length: int,
    contracted: Callable[[list[Read], list[Array]], Array | None],
) -> Array | None:
    """The sum of products of two reads.

    Integers go through float64 where it holds every sum exactly: its BLAS is far faster.
    """
    if any(array.dtype.kind == "f" for array in arrays):
        return contracted(pair, [array.astype(np.float64, copy=False) for array in arrays])
    greatest = [
        max(int(np.abs(array).max(initial=0)), 0 if read.pad is None else abs(int(read.pad.value)))
        for read, array in zip(pair, arrays, strict=True)
    ]
    if length * prod(greatest) >= 2**53:
        return contracted(pair, arrays)
    value = contracted(pair, [array.astype(np.float64) for array in arrays])
    return None if value is None else value.astype(np.int64)
