"""Reads as strided views over iterators, and products of two such views by BLAS.

The input of a convolution is seen as windows without a copy. Contractions are cut into
blocks so that memory stays bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tuner.workload.affine import linear, value_range
from tuner.workload.expression import Read

Array: TypeAlias = NDArray[Any]  # of a carrier's dtype
Ranges: TypeAlias = Mapping[str, tuple[int, int]]  # iterator -> first and last + 1
BLOCK = 1 << 24  # elements of one temporary


@dataclass(frozen=True, slots=True)
class View:
    """A tensor with one axis per iterator, of size 1 where the read does not use it."""

    array: Array
    depends: frozenset[str]

    def block(self, order: tuple[str, ...], ranges: Ranges) -> Array:
        cut = tuple(slice(*ranges[name]) if name in self.depends else slice(None) for name in order)
        return self.array[cut]


def window(
    read: Read, array: Array, order: tuple[str, ...], extents: Mapping[str, int]
) -> View | None:
    """The view of an affine read, padded where it leaves the tensor.

    None where an index is not affine, or where padding would take too much memory.
    """
    forms = [form for index in read.indices if (form := linear(index)) is not None]
    if len(forms) < len(read.indices):
        return None
    ranges = (value_range(index, extents) for index in read.indices)
    pads = [
        (max(0, -values.low), max(0, values.high - extent + 1))
        for values, extent in zip(ranges, array.shape, strict=True)
    ]
    if any(before or after for before, after in pads):
        if (
            prod(n + before + after for n, (before, after) in zip(array.shape, pads, strict=True))
            > 4 * array.size + BLOCK // 4
        ):
            return None
        array = np.pad(array, pads, constant_values=0 if read.pad is None else read.pad.value)
    array = np.ascontiguousarray(array)
    offset, strides = 0, dict.fromkeys(order, 0)
    for form, (before, _), stride in zip(forms, pads, array.strides, strict=True):
        offset += (form.constant + before) * stride
        for name, coefficient in form.coefficients.items():
            strides[name] += coefficient * stride
    depends = frozenset(name for name in order if strides[name])
    shape = tuple(extents[name] if name in depends else 1 for name in order)
    seen = np.ndarray(
        shape,
        array.dtype,
        buffer=array.data,
        offset=offset,
        strides=tuple(strides[name] for name in order),
    )
    return View(seen, depends)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contraction:
    """The sum over `reduced` of left times right, as an array over `kept`."""

    left: View
    right: View
    kept: tuple[str, ...]
    reduced: tuple[str, ...]
    extents: Mapping[str, int]

    def result(self) -> Array:
        dtype = np.result_type(self.left.array, self.right.array)
        out = np.zeros(tuple(self.extents[name] for name in self.kept), dtype)
        self._add(out, {name: (0, extent) for name, extent in self.extents.items()})
        return out

    def _add(self, out: Array, ranges: dict[str, tuple[int, int]]) -> None:
        order = self.kept + self.reduced
        sizes = {name: stop - start for name, (start, stop) in ranges.items()}
        for view in (self.left, self.right):
            if prod(sizes[name] for name in view.depends) > BLOCK:
                name = max(view.depends, key=lambda name: sizes[name])
                start, stop = ranges[name]
                middle = (start + stop) // 2
                self._add(out, {**ranges, name: (start, middle)})
                self._add(out, {**ranges, name: (middle, stop)})
                return
        product = _multiply(
            self.left.block(order, ranges), self.right.block(order, ranges), len(self.kept)
        )
        idle = prod(
            sizes[name]
            for name in self.reduced
            if name not in self.left.depends | self.right.depends
        )
        out[tuple(slice(*ranges[name]) for name in self.kept)] += (
            product * idle if idle != 1 else product
        )


def _multiply(left: Array, right: Array, kept: int) -> Array:
    """Sum of left times right over the axes from `kept` on; the result has `kept` axes.

    Axes of size 1 broadcast.
    """
    left, right = _summed(left, right.shape, kept), _summed(right, left.shape, kept)
    axes = range(left.ndim)
    inner = [axis for axis in axes if axis >= kept]
    batch = [
        axis for axis in axes if axis < kept and left.shape[axis] > 1 and right.shape[axis] > 1
    ]
    rows = [axis for axis in axes if axis < kept and axis not in batch and right.shape[axis] == 1]
    columns = [axis for axis in axes if axis < kept and axis not in batch and axis not in rows]

    def size(array: Array, group: list[int]) -> int:
        return prod(array.shape[axis] for axis in group)

    b, m, n, k = size(left, batch), size(left, rows), size(right, columns), size(left, inner)
    a = left.transpose(*batch, *rows, *columns, *inner).reshape(b, m, k)
    c = right.transpose(*batch, *rows, *inner, *columns).reshape(b, k, n)
    order = [*batch, *rows, *columns]
    shape = [
        *(left.shape[axis] for axis in (*batch, *rows)),
        *(right.shape[axis] for axis in columns),
    ]
    product: Array = np.matmul(a, c).reshape(shape)
    return product.transpose(*(order.index(axis) for axis in range(kept)))


def _summed(array: Array, other: tuple[int, ...], kept: int) -> Array:
    """`array` summed over the reduced axes along which the other factor has size 1."""
    lone = tuple(
        axis for axis in range(kept, array.ndim) if other[axis] == 1 and array.shape[axis] > 1
    )
    return array.sum(axis=lone, keepdims=True) if lone else array
