"""Random inputs for checking kernels: normal values, large values of both signs or of one,
zeros, and normal values with special ones among them.

Indices of gathers lie in their range, and around it among large values. Bytes that stand
for floats are drawn as floats.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tuner.errors import UsageError
from tuner.workload import facts
from tuner.workload.arrays import numpy_dtype
from tuner.workload.dtypes import ByteFloat
from tuner.workload.expression import (
    Binary,
    Bitcast,
    Cast,
    Const,
    Expression,
    Read,
    Scalar,
    Tensor,
    Unary,
    reads,
    walk,
)
from tuner.workload.reference import errors_are_linear, largest_value
from tuner.workload.special_values import only_orders, sprinkled

Kind = Literal["normal", "large", "zeros", "special", "positive"]
_LARGE = (1e4, 1e3, 1e2, 1e1, 1.0, 1e-1, 1e-2)  # tried from the largest
# From which size on integers are drawn from their whole range; others where nothing grows.
_WHOLE_RANGE = {"int8": 1e2, "uint8": 1e2, "int16": 1e4, "uint16": 1e4}
_SHARE_OF_ENDS = 0.25  # of such integers are the least or greatest of their dtype
# Greatest floats of 8 bits: the largest of E4M3 without infinities, and of E5M2.
_GREATEST: Mapping[ByteFloat, float] = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
_HEADROOM = 0.25  # share of the dtype's range that values of any stage may take


def make_inputs(
    expression: Expression, seed: int, kind: Kind = "normal"
) -> dict[str, NDArray[Any]]:
    """One contiguous array per input in its dtype, determined by seed and kind.

    - `normal`: standard normal floats; integers small enough not to overflow.
    - `large`: values of both signs, as large as possible without overflow in any stage,
      and without errors that a function makes more of than its slope says;
      integers from their dtype's whole range, with both of its ends, where no sum of
      them overflows; indices of gathers also outside their tensor.
    - `zeros`.
    - `positive`: floats as among `large`, without their signs, so that no term of a sum hides
      another; integers as among `normal`.
    - `special`: as `normal`, with special values among floats (`special_values`).

    Bytes of which only bits are taken as floats of 8 bits are those of such floats.

    Inputs of which a logarithm or root is computed are positive. Those with a fact have it
    in every kind; among zeros all rows are empty.
    Raises `UsageError` for an unknown kind.
    """
    if kind not in get_args(Kind):
        raise UsageError(
            f"unknown kind of inputs {kind!r}; it is one of {', '.join(get_args(Kind))}"
        )
    indices, positive = index_ranges(expression), _positive(expression)
    orders, byte_floats = only_orders(expression), _byte_floats(expression)

    def made(size: float) -> dict[str, NDArray[Any]]:
        rng = np.random.default_rng([seed, get_args(Kind).index(kind)])
        return {
            t.name: _coded(rng, t.shape, byte_floats[t.name], kind, size)
            if t.name in byte_floats
            else _values(rng, t, kind, size, indices.get(t.name), t.name in positive)
            for t in expression.inputs
        }

    if kind == "special":
        rng = np.random.default_rng([seed, get_args(Kind).index(kind)])
        dtypes = {tensor.name: tensor.dtype for tensor in expression.inputs}
        return {
            name: sprinkled(rng, values, dtype=dtypes[name], extremes=orders)
            if "float" in dtypes[name]
            else values
            for name, values in make_inputs(expression, seed, "normal").items()
        }
    if kind == "zeros":
        return made(0.0)
    if kind == "large" and orders:
        return made(math.inf)
    if kind == "normal" and not any(
        "int" in tensor.dtype
        and tensor.name not in (*indices, *byte_floats)
        and tensor.fact is None
        for tensor in expression.inputs
    ):
        return made(1.0)
    for size in _LARGE:
        arrays = made(min(size, 1e2) if kind == "normal" else size)
        if errors_are_linear(expression, arrays) and largest_value(expression, arrays) <= _HEADROOM:
            return arrays
    return made(_LARGE[-1])


def _values(
    rng: np.random.Generator,
    tensor: Tensor,
    kind: Kind,
    size: float,
    index_extent: int | None,
    positive: bool,
) -> NDArray[Any]:
    dtype = numpy_dtype(tensor.dtype)
    if tensor.fact is not None:
        return facts.constant(tensor) if kind == "zeros" else facts.drawn(rng, tensor)
    if kind == "zeros":
        return np.zeros(tensor.shape, dtype)
    if tensor.dtype == "bool":
        return rng.integers(0, 2, tensor.shape).astype(dtype)
    if "int" in tensor.dtype:
        return _integers(rng, tensor, kind, size, index_extent)
    values = _floats(rng, tensor.shape, tensor.dtype, kind, size)
    return (np.abs(values) if positive else values).astype(dtype)


def _floats(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: str, kind: Kind, size: float
) -> NDArray[Any]:
    if kind == "normal":
        return rng.standard_normal(shape, np.float32 if dtype != "float64" else np.float64)
    values = min(size, _LARGE[0]) * rng.uniform(0.5, 1.0, shape)
    return values * rng.choice([-1.0, 1.0], shape) if kind == "large" else values


def _coded(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: ByteFloat, kind: Kind, size: float
) -> NDArray[np.uint8]:
    """Bytes of floats of 8 bits, none beyond the greatest."""
    if kind == "zeros":
        return np.zeros(shape, np.uint8)
    most = _GREATEST[dtype]
    values = np.clip(_floats(rng, shape, "float32", kind, min(size, most)), -most, most)
    coded: NDArray[np.uint8] = values.astype(numpy_dtype(dtype)).view(np.uint8)
    return coded


def _byte_floats(expression: Expression) -> Mapping[str, ByteFloat]:
    """Inputs whose elements are taken for floats of 8 bits wherever they are read."""
    converted, formats = Counter[str](), dict[str, set[ByteFloat]]()
    for stage in expression.stages:
        for node in walk(stage.body):
            match node:
                case Bitcast(dtype="float8_e4m3fn" | "float8_e5m2" as dtype, arg=Read() as read):
                    converted[read.tensor] += 1
                    formats.setdefault(read.tensor, set()).add(dtype)
    every = Counter(each.tensor for stage in expression.stages for each in reads(stage.body))
    names = {tensor.name for tensor in expression.inputs if tensor.fact is None}
    return {
        name: min(of_name)
        for name, of_name in formats.items()
        if name in names and len(of_name) == 1 and converted[name] == every[name]
    }


def _integers(
    rng: np.random.Generator, tensor: Tensor, kind: Kind, size: float, index_extent: int | None
) -> NDArray[Any]:
    limits = np.iinfo(tensor.dtype)
    if index_extent is not None:
        low, high = (
            (-2 * index_extent, 3 * index_extent) if kind == "large" else (0, index_extent - 1)
        )
    elif kind == "large" and size >= _WHOLE_RANGE.get(tensor.dtype, math.inf):
        ends = rng.choice([int(limits.min), int(limits.max)], tensor.shape)
        drawn = rng.integers(limits.min, limits.max, tensor.shape, limits.dtype, endpoint=True)
        return np.where(rng.random(tensor.shape) < _SHARE_OF_ENDS, ends, drawn).astype(tensor.dtype)
    else:
        high = max(
            1, int(size if tensor.dtype not in ("int8", "uint8") else 127 if size >= 100 else size)
        )
        low = -high
    low, high = max(low, int(limits.min)), min(high, int(limits.max))
    return rng.integers(low, high, tensor.shape, endpoint=True).astype(tensor.dtype)


def index_ranges(expression: Expression) -> Mapping[str, int]:
    """Integer inputs that index tensors, with the smallest extent that each indexes."""
    shapes = {tensor.name: tensor.shape for tensor in expression.inputs}
    names, extents = set(shapes), dict[str, int]()
    for stage in expression.stages:
        for read in reads(stage.body):
            for index, extent in zip(read.indices, shapes[read.tensor], strict=True):
                for inner in reads(index):
                    if inner.tensor in names:
                        extents[inner.tensor] = min(extents.get(inner.tensor, extent), extent)
        shapes[stage.name] = stage.tensor.shape
    return extents


def _positive(expression: Expression) -> set[str]:
    """Inputs that are the operand of a logarithm, root or power, perhaps plus a constant."""
    names = set[str]()
    for stage in expression.stages:
        for node in walk(stage.body):
            match node:
                case Unary(op="log" | "sqrt" | "rsqrt", arg=arg) | Binary(op="pow", lhs=arg):
                    names |= {read.tensor for read in [_bare(arg)] if read is not None}
    return names & {tensor.name for tensor in expression.inputs}


def _bare(node: Scalar) -> Read | None:
    match node:
        case Read():
            return node
        case (
            Cast(arg=arg)
            | Binary(op="add", lhs=arg, rhs=Const())
            | Binary(op="add", lhs=Const(), rhs=arg)
        ):
            return _bare(arg)
        case _:
            return None
