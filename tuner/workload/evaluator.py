"""Evaluation of one stage on float64, integer and bool arrays.

Optionally each element's magnitude (`tuner.workload.dual`) is tracked beside its value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np

from tuner.workload.arrays import carrier, numpy_dtype, of_bits
from tuner.workload.blas_products import product_by_blas
from tuner.workload.dtypes import DType
from tuner.workload.dual import Dual, Tensors, finite_size, size_of
from tuner.workload.expression import (
    Binary,
    Bitcast,
    Cast,
    Const,
    RaggedRange,
    Read,
    Reducer,
    Scalar,
    Scattering,
    Select,
    Stage,
    Unary,
    Var,
    ragged_range,
    scattering,
    walk,
)
from tuner.workload.ragged_rows import Rows, row_blocks, scattered_terms
from tuner.workload.scalar_operators import BINARY_OPERATORS, REDUCTIONS, UNARY_OPERATORS, identity
from tuner.workload.split_iterators import with_split_iterators
from tuner.workload.windows import BLOCK, Array, Ranges, View, window


def evaluate_stage(stage: Stage, tensors: Tensors, *, track: bool, wrap: bool = True) -> Dual:
    """The tensor that a stage defines, of the shape of its axes.

    `track` computes magnitudes too. `wrap` reduces integers modulo 2 to the number of
    bits of the stage's dtype.
    """
    shape = tuple(axis.extent for axis in stage.axes)
    with np.errstate(all="ignore"):
        if (ragged := ragged_range(stage)) is not None:
            result = _evaluate_ragged(stage, ragged, tensors, track=track)
        elif (scattered := scattering(stage)) is not None:
            result = _evaluate_scattered(stage, scattered, tensors, track=track)
        else:
            result = _evaluate_plain(stage, tensors, track=track)
    value = result.value.reshape(shape)
    if "int" in stage.dtype:
        value = _whole(value, stage.dtype) if wrap else np.trunc(value)
    elif stage.dtype != "bool":
        value = value.astype(np.float64, copy=False)
    return Dual(value, None if result.magnitude is None else result.magnitude.reshape(shape))


def _evaluate_plain(stage: Stage, tensors: Tensors, *, track: bool) -> Dual:
    divided = with_split_iterators(stage)
    product = product_by_blas(divided, tensors, track=track)
    return product or _Blocks(divided, tensors, track).result()


def _evaluate_ragged(stage: Stage, ragged: RaggedRange, tensors: Tensors, *, track: bool) -> Dual:
    """A reduction over the places of rows: the terms of all of them, reduced row by row."""
    extents, reduction = stage.extents, REDUCTIONS[stage.reducer or "sum"]
    pointers = np.clip(tensors[ragged.splits].value.astype(np.int64), 0, extents[ragged.axis])
    starts, lengths = pointers[:-1], np.maximum(np.diff(pointers), 0)
    room = max(1, BLOCK // 4 * extents[ragged.axis] // stage.points)
    position = [axis.name for axis in stage.axes].index(ragged.row)
    others = [axis.extent for axis in stage.axes if axis.name != ragged.row]
    empty = np.asarray(identity(stage.reducer or "sum", stage.accumulator).value)
    values: list[Array] = []
    sizes: list[Array] = []
    for low, high in row_blocks(lengths, room):
        rows = Rows.of(low, starts[low:high], lengths[low:high])
        if len(rows.place):
            terms = _Blocks(rows.terms(stage, ragged), {**tensors, **_duals(rows)}, track).result()
        else:
            terms = Dual(np.zeros((0, *others), carrier(stage.accumulator)))
        values.append(rows.reduced(terms.value, reduction.ufunc, empty))
        if track:
            sizes.append(rows.reduced(terms.size, reduction.magnitudes, finite_size(empty)))
    value = np.moveaxis(np.concatenate(values), 0, position)
    return Dual(value, np.moveaxis(np.concatenate(sizes), 0, position) if track else None)


def _evaluate_scattered(
    stage: Stage, scattered: Scattering, tensors: Tensors, *, track: bool
) -> Dual:
    """A reduction whose terms name their rows: all terms, reduced into the rows they name."""
    reduction, terms = REDUCTIONS[stage.reducer or "sum"], scattered_terms(stage, scattered)
    shape = tuple(axis.extent for axis in stage.axes)
    position = [axis.name for axis in stage.axes].index(scattered.row)
    empty = np.asarray(identity(stage.reducer or "sum", stage.accumulator).value)
    value = np.full(shape, empty, carrier(stage.accumulator))
    size = np.full(shape, finite_size(empty))
    whole = {axis.name: (0, axis.extent) for axis in terms.axes}
    first = terms.axes[0]
    step = max(1, BLOCK // 4 * first.extent // stage.points)
    for low in range(0, first.extent, step):
        ranges = {**whole, first.name: (low, min(first.extent, low + step))}
        computed = _Blocks(terms, tensors, track).within(ranges)
        rows = _Blocks(replace(terms, body=scattered.index), tensors, track=False).within(ranges)
        index: list[Array] = [*np.indices(rows.value.shape, sparse=True)]
        index = index[len(stage.reduce_axes) :]
        index.insert(position, rows.value.astype(np.int64))
        kept = (rows.value >= 0) & (rows.value < shape[position])
        index = [np.broadcast_to(part, kept.shape)[kept] for part in index]
        reduction.ufunc.at(value, tuple(index), computed.value[kept])
        if track:
            reduction.magnitudes.at(size, tuple(index), computed.size[kept])
    return Dual(value, size if track else None)


def _duals(rows: Rows) -> dict[str, Dual]:
    return {name: Dual(array) for name, array in rows.tensors.items()}


def widest_operand(stage: Stage, tensors: Tensors) -> float:
    """The greatest magnitude of what a curved function of the stage is computed from."""
    operands = [
        node.arg
        for node in walk(stage.body)
        if isinstance(node, Unary) and UNARY_OPERATORS[node.op].is_curved
    ]
    reducer: Reducer | None = "max" if stage.reduce_axes else None  # of magnitudes, too
    with np.errstate(all="ignore"):
        return max(
            float(np.max(_Blocks(part, tensors, track=True).result().size))
            for part in (
                with_split_iterators(replace(stage, body=operand, reducer=reducer))
                for operand in operands
            )
        )


def _materialized(array: Array, shape: tuple[int, ...]) -> Array:
    """The array broadcast to a shape, in memory of its own.

    An array that owns such memory is not copied: for large tensors, touching new memory
    takes most of the time.
    """
    return (
        array
        if array.shape == shape and array.flags.owndata
        else np.broadcast_to(array, shape).copy()
    )


class _Blocks:
    """Evaluates any stage in blocks of its iteration space, so that memory stays bounded."""

    def __init__(self, stage: Stage, tensors: Tensors, track: bool) -> None:
        self.stage, self.tensors, self.track = stage, tensors, track
        self.reduction = REDUCTIONS[stage.reducer or "sum"]
        self.kept, self.reduced = (
            tuple(axis.name for axis in stage.axes),
            tuple(axis.name for axis in stage.reduce_axes),
        )
        self.order = self.kept + self.reduced
        self.extents = stage.extents
        self.views: dict[tuple[Read, bool], View | None] = {}
        self.ranges: Ranges = {}

    def result(self) -> Dual:
        return self.within({name: (0, extent) for name, extent in self.extents.items()})

    def within(self, ranges: dict[str, tuple[int, int]]) -> Dual:
        """The part with each iterator from a start to less than an end."""
        sizes = {name: stop - start for name, (start, stop) in ranges.items()}
        if prod(sizes.values()) <= BLOCK // 4:
            return self._block(ranges)
        name = next((name for name in self.kept if sizes[name] > 1), None) or max(
            self.reduced, key=lambda name: sizes[name]
        )
        start, stop = ranges[name]
        middle = (start + stop) // 2
        first, second = (
            self.within({**ranges, name: (start, middle)}),
            self.within({**ranges, name: (middle, stop)}),
        )
        if name in self.kept:
            axis = self.kept.index(name)
            return self._joined(first, second, lambda a, b: np.concatenate([a, b], axis))
        return self._joined(
            first, second, self.reduction.ufunc, magnitude=self.reduction.magnitudes
        )

    def _joined(
        self,
        first: Dual,
        second: Dual,
        join: Callable[[Array, Array], Array],
        magnitude: Callable[[Array, Array], Array] | None = None,
    ) -> Dual:
        sizes = (magnitude or join)(first.size, second.size) if self.track else None
        return Dual(join(first.value, second.value), sizes)

    def _block(self, ranges: Ranges) -> Dual:
        self.ranges = ranges
        full = tuple(ranges[name][1] - ranges[name][0] for name in self.order)
        body = self._eval(self.stage.body)
        if not self.reduced:
            return Dual(
                _materialized(body.value, full),
                _materialized(body.size, full) if self.track else None,
            )
        axes = tuple(range(len(self.kept), len(self.order)))
        value = self.reduction.ufunc.reduce(np.broadcast_to(body.value, full), axis=axes)
        size = (
            self.reduction.magnitudes.reduce(np.broadcast_to(body.size, full), axis=axes)
            if self.track
            else None
        )
        return Dual(value, size)

    def _eval(self, node: Scalar) -> Dual:
        match node:
            case Var(name=name):
                shape = [-1 if name == other else 1 for other in self.order]
                return Dual(np.arange(*self.ranges[name], dtype=np.int64).reshape(shape))
            case Const(value=number, dtype=dtype):
                return Dual(np.full((1,) * len(self.order), number, carrier(dtype)))
            case Read():
                return self._read(node)
            case Cast(dtype=dtype, arg=arg):
                return _cast(self._eval(arg), dtype)
            case Bitcast(arg=arg):
                return Dual(of_bits(self._eval(arg).value, node))
            case Select(cond=cond, then=then, other=other):
                holds, first, second = self._eval(cond).value, self._eval(then), self._eval(other)
                return Dual(
                    np.where(holds, first.value, second.value),
                    np.where(holds, first.size, second.size) if self.track else None,
                )
            case Unary(op=op, arg=arg):
                row, inner = UNARY_OPERATORS[op], self._eval(arg)
                value = row.evaluate(inner.value)
                if not self.track or value.dtype == np.bool_:
                    return Dual(value)
                return Dual(
                    value, _at_least_value(row.magnitude(inner.value, inner.size, value), value)
                )
            case Binary(op=op, lhs=lhs, rhs=rhs):
                rule, left, right = BINARY_OPERATORS[op], self._eval(lhs), self._eval(rhs)
                value = rule.evaluate(left.value, right.value)
                if not self.track or value.dtype == np.bool_:
                    return Dual(value)
                size = rule.magnitude(left.value, right.value, left.size, right.size, value)
                return Dual(value, _at_least_value(size, value))

    def _read(self, read: Read) -> Dual:
        tensor = self.tensors[read.tensor]
        value = self._gathered(read, tensor.value, False)
        return Dual(
            value,
            None
            if tensor.magnitude is None or not self.track
            else self._gathered(read, tensor.magnitude, True),
        )

    def _gathered(self, read: Read, array: Array, magnitude: bool) -> Array:
        read = size_of(read) if magnitude else read
        if (read, magnitude) not in self.views:
            self.views[read, magnitude] = self._view(read, array)
        view = self.views[read, magnitude]
        return (
            view.block(self.order, self.ranges) if view is not None else self._indexed(read, array)
        )

    def _view(self, read: Read, array: Array) -> View | None:
        fractional = (
            read.pad is not None
            and array.dtype.kind in "iu"
            and not float(read.pad.value).is_integer()
        )
        return None if fractional else window(read, array, self.order, self.extents)

    def _indexed(self, read: Read, array: Array) -> Array:
        indices = [self._eval(index).value for index in read.indices]
        if read.pad is None:
            return np.asarray(array[tuple(np.broadcast_arrays(*indices))])
        inside = np.ones((1,) * len(self.order), np.bool_)
        for index, extent in zip(indices, array.shape, strict=True):
            inside = inside & (index >= 0) & (index < extent)
        clipped = [
            np.clip(index, 0, extent - 1)
            for index, extent in zip(indices, array.shape, strict=True)
        ]
        return np.where(
            inside,
            array[tuple(np.broadcast_arrays(*clipped))],
            np.asarray(read.pad.value, array.dtype),
        )


def _cast(inner: Dual, dtype: DType) -> Dual:
    value = inner.value
    if "int" in dtype:
        return Dual(_whole(value, dtype), inner.magnitude)
    value = value if value.dtype == np.float64 else value.astype(np.float64)
    if dtype == "float16" or dtype == "bfloat16":
        value = UNARY_OPERATORS[dtype].evaluate(value)
    return Dual(value, inner.magnitude)


def _whole(value: Array, dtype: str) -> Array:
    """The values as integers of a dtype, wrapped into it, in its carrier.

    Floats are truncated towards zero. Those from 2^63 on are converted as uint64, since
    int64 does not hold them.
    """
    if value.dtype.kind == "f":
        whole = np.trunc(value)
        value = whole.astype(np.int64)
        if dtype == "uint64":
            value = np.where(whole >= 2.0**63, whole.astype(np.uint64), value.astype(np.uint64))
    return np.asarray(value.astype(numpy_dtype(dtype)).astype(carrier(dtype)))


def _at_least_value(size: Array, value: Array) -> Array:
    """Magnitudes that are at least the absolute value, which also stands in for NaN."""
    own = np.abs(value).astype(np.float64, copy=False)
    if np.isfinite(own.max(initial=0.0)):
        return np.fmax(size, own)  # the other where one is NaN
    return np.where(np.isnan(size), own, np.maximum(size, np.where(np.isfinite(own), own, 0)))
