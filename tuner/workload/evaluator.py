"""One stage evaluated on float64 and int64 arrays, optionally with the magnitude of
each element beside its value.

The magnitude m of a value v is a first-order condition number: rounding every operation
relatively by u moves v by about u * m at most. It equals the same expression on
absolute values for sums and products (Higham, Accuracy and Stability, ch. 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tuner.workload.expression import (
    Binary,
    Cast,
    Const,
    Read,
    Scalar,
    Select,
    Stage,
    Unary,
    Var,
    rewrite,
    walk,
)
from tuner.workload.windows import BLOCK, Array, Contraction, Ranges, View, window

_REDUCE: Mapping[str, Any] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
_ERF = np.frompyfunc(math.erf, 1, 1)


def _nearest_bfloat16(x: Array) -> Array:
    """The multiple of its last place that is nearest to each float32, to even where two
    are; of 8 significant bits."""
    fraction, exponent = np.frexp(x)
    return np.asarray(np.ldexp(np.rint(np.ldexp(fraction, 8)), exponent - 8))


_UNARY: Mapping[str, Callable[[Array], Array]] = {
    "neg": np.negative,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "erf": lambda x: np.asarray(_ERF(x), np.float64),
    "abs": np.abs,
    "not": np.logical_not,
    "bfloat16": _nearest_bfloat16,
}
_BINARY: Mapping[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "floordiv": np.floor_divide,
    "floormod": np.mod,
    "max": np.maximum,
    "min": np.minimum,
    "pow": np.power,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.bitwise_xor,
}


@dataclass(frozen=True, slots=True)
class Dual:
    """Values with their magnitudes; None where magnitudes are not tracked, or are the
    absolute values."""

    value: Array
    magnitude: Array | None = None

    @property
    def size(self) -> Array:
        return _finite_size(self.value) if self.magnitude is None else self.magnitude


Tensors = Mapping[str, Dual]


def evaluate_stage(stage: Stage, tensors: Tensors, *, track: bool, wrap: bool = True) -> Dual:
    """The tensor a stage defines. `wrap` brings integers into the stage's dtype (modulo
    2 to the number of its bits)."""
    shape = tuple(axis.extent for axis in stage.axes)
    with np.errstate(all="ignore"):
        divided = split(stage)
        result = (
            _contract(divided, tensors, track=track) or _Blocks(divided, tensors, track).result()
        )
    value = result.value.reshape(shape)
    if "int" in stage.dtype:
        whole = np.trunc(value) if value.dtype.kind == "f" else value
        value = (whole.astype(np.int64).astype(stage.dtype) if wrap else whole).astype(np.int64)
    elif stage.dtype != "bool":
        value = value.astype(np.float64, copy=False)
    return Dual(value, None if result.magnitude is None else result.magnitude.reshape(shape))


def split(stage: Stage) -> Stage:
    """The stage with iterators in i // c or i % c, where c divides their extent, split
    in two: its indices become affine."""
    found: dict[str, int] = {}
    extents = stage.extents
    for node in walk(stage.body):
        match node:
            case Binary(
                op="floordiv" | "floormod", lhs=Var(name=name), rhs=Const(value=divisor)
            ) if extents[name] % int(divisor) == 0:
                found.setdefault(name, int(divisor))
    if not found:
        return stage

    def change(node: Scalar) -> Scalar | None:
        match node:
            case Binary(op="floordiv", lhs=Var(name=name), rhs=Const(value=divisor)) if (
                found.get(name) == divisor
            ):
                return Var(f"{name} outer")
            case Binary(op="floormod", lhs=Var(name=name), rhs=Const(value=divisor)) if (
                found.get(name) == divisor
            ):
                return Var(f"{name} inner")
            case Var(name=name) if name in found:
                return Binary(
                    "add",
                    Binary("mul", Var(f"{name} outer"), Const(found[name], "int64")),
                    Var(f"{name} inner"),
                )
        return None

    def axes(given: tuple[Any, ...]) -> tuple[Any, ...]:
        parts = []
        for axis in given:
            size = found.get(axis.name)
            parts += (
                [axis]
                if size is None
                else [
                    type(axis)(name=f"{axis.name} outer", extent=axis.extent // size),
                    type(axis)(name=f"{axis.name} inner", extent=size),
                ]
            )
        return tuple(parts)

    return Stage(
        name=stage.name,
        axes=axes(stage.axes),
        reduce_axes=axes(stage.reduce_axes),
        reducer=stage.reducer,
        body=rewrite(stage.body, change),
        dtype=stage.dtype,
        accumulator=stage.accumulator,
    )


def _stripped(node: Scalar) -> Scalar:
    """Without casts that keep every value: between floats (the reference does not
    round), or to wider integers."""
    while (
        isinstance(node, Cast)
        and ("float" in node.dtype or node.dtype in ("int32", "int64"))
        and isinstance(node.arg, Read | Cast)
    ):
        node = node.arg
    return node


def _contract(stage: Stage, tensors: Tensors, *, track: bool) -> Dual | None:
    """A sum of products of two affine reads, through BLAS; None for anything else."""
    if stage.reducer != "sum" or not isinstance(stage.body, Binary) or stage.body.op != "mul":
        return None
    factors = [_stripped(stage.body.lhs), _stripped(stage.body.rhs)]
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
    value = _product(
        pair, [dual.value for dual in duals], prod(extents[name] for name in reduced), contracted
    )
    if value is None or not track:
        return None if value is None else Dual(value)
    sizes, bare = (
        [_size_of(factor) for factor in pair],
        [_finite_size(dual.value) for dual in duals],
    )
    weighted = [which for which in (0, 1) if duals[which].magnitude is not None]
    parts = [
        contracted(sizes, [duals[at].size if at == which else bare[at] for at in (0, 1)])
        for which in weighted
    ]
    total = parts[0] if len(parts) == 1 else contracted(sizes, bare)
    if len(parts) == 2 and parts[0] is not None and parts[1] is not None and total is not None:
        total = parts[0] + parts[1] - total
    return Dual(value, total)


def _product(
    pair: list[Read],
    arrays: list[Array],
    length: int,
    contracted: Callable[[list[Read], list[Array]], Array | None],
) -> Array | None:
    """The sum of products; integers go through float64, whose BLAS is far quicker,
    where it holds every sum exactly."""
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


def _size_of(read: Read) -> Read:
    """The same read of a tensor of magnitudes: padded with the size of the constant,
    infinities counting nothing."""
    if read.pad is None:
        return read
    size = abs(float(read.pad.value))
    return Read(read.tensor, read.indices, Const(0.0 if math.isinf(size) else size, "float64"))


def _finite_size(value: Array) -> Array:
    size: Array = np.asarray(np.abs(value), np.float64)  # new in any case, so it can be changed
    size[np.isinf(size)] = 0.0
    return size


def _whole(array: Array, shape: tuple[int, ...]) -> Array:
    """The array in this shape and memory of its own. First touched memory is what large
    tensors take most time for."""
    return (
        array
        if array.shape == shape and array.flags.owndata
        else np.broadcast_to(array, shape).copy()
    )


class _Blocks:
    """A stage in blocks of its iteration space: whatever is not a plain contraction."""

    def __init__(self, stage: Stage, tensors: Tensors, track: bool) -> None:
        self.stage, self.tensors, self.track = stage, tensors, track
        self.kept, self.reduced = (
            tuple(axis.name for axis in stage.axes),
            tuple(axis.name for axis in stage.reduce_axes),
        )
        self.order = self.kept + self.reduced
        self.extents = stage.extents
        self.views: dict[tuple[Read, bool], View | None] = {}
        self.ranges: Ranges = {}

    def result(self) -> Dual:
        return self._over({name: (0, extent) for name, extent in self.extents.items()})

    def _over(self, ranges: dict[str, tuple[int, int]]) -> Dual:
        sizes = {name: stop - start for name, (start, stop) in ranges.items()}
        if prod(sizes.values()) <= BLOCK // 4:
            return self._block(ranges)
        name = next((name for name in self.kept if sizes[name] > 1), None) or max(
            self.reduced, key=lambda found: sizes[found]
        )
        start, stop = ranges[name]
        middle = (start + stop) // 2
        first, second = (
            self._over({**ranges, name: (start, middle)}),
            self._over({**ranges, name: (middle, stop)}),
        )
        if name in self.kept:
            axis = self.kept.index(name)
            return self._joined(first, second, lambda a, b: np.concatenate([a, b], axis))
        return self._joined(
            first, second, _REDUCE[self.stage.reducer or "sum"], magnitude=self._magnitude_reducer()
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

    def _magnitude_reducer(self) -> Any:
        return {"sum": np.add, "prod": np.multiply}.get(self.stage.reducer or "", np.maximum)

    def _block(self, ranges: Ranges) -> Dual:
        self.ranges = ranges
        full = tuple(ranges[name][1] - ranges[name][0] for name in self.order)
        found = self._eval(self.stage.body)
        if not self.reduced:
            return Dual(_whole(found.value, full), _whole(found.size, full) if self.track else None)
        axes = tuple(range(len(self.kept), len(self.order)))
        value = _REDUCE[self.stage.reducer or "sum"].reduce(
            np.broadcast_to(found.value, full), axis=axes
        )
        size = (
            self._magnitude_reducer().reduce(np.broadcast_to(found.size, full), axis=axes)
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
                kind = np.bool_ if dtype == "bool" else np.float64 if "float" in dtype else np.int64
                return Dual(np.full((1,) * len(self.order), number, kind))
            case Read():
                return self._read(node)
            case Cast(dtype=dtype, arg=arg):
                return _cast(self._eval(arg), dtype)
            case Select(cond=cond, then=then, other=other):
                holds, first, second = self._eval(cond).value, self._eval(then), self._eval(other)
                return Dual(
                    np.where(holds, first.value, second.value),
                    np.where(holds, first.size, second.size) if self.track else None,
                )
            case Unary(op=op, arg=arg):
                inner = self._eval(arg)
                value = _UNARY[op](inner.value)
                return Dual(
                    value,
                    _unary_magnitude(op, inner, value) if self.track and op != "not" else None,
                )
            case Binary(op=op, lhs=lhs, rhs=rhs):
                left, right = self._eval(lhs), self._eval(rhs)
                value = _BINARY[op](left.value, right.value)
                return Dual(
                    value,
                    _binary_magnitude(op, left, right, value)
                    if self.track and value.dtype != np.bool_
                    else None,
                )

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
        read = _size_of(read) if magnitude else read
        if (read, magnitude) not in self.views:
            self.views[read, magnitude] = self._view(read, array)
        view = self.views[read, magnitude]
        return (
            view.block(self.order, self.ranges) if view is not None else self._indexed(read, array)
        )

    def _view(self, read: Read, array: Array) -> View | None:
        fractional = (
            read.pad is not None
            and array.dtype.kind == "i"
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


def _cast(inner: Dual, dtype: str) -> Dual:
    value = inner.value
    if "int" in dtype:
        whole = np.trunc(value) if value.dtype.kind == "f" else value
        return Dual(whole.astype(np.int64).astype(dtype).astype(np.int64), inner.magnitude)
    return Dual(value if value.dtype == np.float64 else value.astype(np.float64), inner.magnitude)


def _unary_magnitude(op: str, inner: Dual, value: Array) -> Array:
    """|v| plus the relative weight with which an error of the argument arrives: |f'(x)|
    times its magnitude."""
    x, m = inner.value, inner.size
    match op:
        case "exp":
            size = value * (1 + m)
        case "log":
            size = np.abs(value) + m / np.abs(x)
        case "sqrt" | "rsqrt":
            size = value * (1 + m / np.abs(x)) / 2
        case "tanh":
            size = np.abs(value) + (1 - value**2) * m
        case "erf":
            size = np.abs(value) + 2 / math.sqrt(math.pi) * np.exp(-(x.astype(np.float64) ** 2)) * m
        case _:
            size = m
    return _sound(size, value)


def _binary_magnitude(op: str, left: Dual, right: Dual, value: Array) -> Array:
    a, b, m, n = np.abs(left.value), np.abs(right.value), left.size, right.size
    match op:
        case "add" | "sub":
            size = m + n
        case "mul":
            size = m * b + a * n - a * b
        case "div":
            size = m / b + a * n / b**2 - a / b
        case "pow":
            size = np.abs(value) * (1 + b * m / a + np.abs(np.log(a)) * n)
        case "max" | "min":
            size = np.maximum(m, n)
        case _:
            size = np.abs(value)
    return _sound(size, value)


def _sound(size: Array, value: Array) -> Array:
    """Where infinities leave no number, the value's own size."""
    own = np.abs(value).astype(np.float64)
    return np.where(np.isnan(size), own, np.maximum(size, np.where(np.isfinite(own), own, 0)))
