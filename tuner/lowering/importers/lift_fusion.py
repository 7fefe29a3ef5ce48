"""Simplification of lifted programs.

Padding becomes padded reads, padding stages are inlined, and rounding is merged into
the reduction before it. Values stay the same, except that a -FLT_MAX that padded a
maximum becomes its true identity, -inf.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from math import gcd, inf, prod

from tuner.lowering.indices import tidy
from tuner.workload.affine import affine, value_range
from tuner.workload.arrays import numpy_dtype
from tuner.workload.bounds import is_inside, without_redundant_padding
from tuner.workload.dtypes import COMPUTED_IN, FLOATS, INTEGER_RANGES, INTEGERS, DType
from tuner.workload.expression import (
    Binary,
    Cast,
    Const,
    Expression,
    Read,
    Scalar,
    Select,
    Stage,
    Tensor,
    Unary,
    Var,
    reads,
    rewrite,
    substitute,
    walk,
)
from tuner.workload.reference import greatest

_MOST_POINTS = 1 << 20  # of one dimension's index, when it is enumerated


# --- reads under conditions


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inequality:
    """A condition on integers: the sum of coefficient * atom, plus a constant, is >= 0."""

    terms: frozenset[tuple[Scalar, int]]  # (atom, coefficient)
    constant: int


def guarded(node: Scalar, extents: Mapping[str, int], tensors: Mapping[str, Tensor]) -> Scalar:
    """The scalar with every read under a condition padded where it may leave its tensor.

    `T[…] where T[…] is inside, else constant` becomes one padded read.
    """
    dtypes = {name: tensor.dtype for name, tensor in tensors.items()}

    def change(scalar: Scalar, conditional: bool) -> Scalar:
        match scalar:
            case Select(cond=cond, then=then, other=other):
                padded = _padded(scalar, extents, tensors)
                if padded is not None:
                    return padded
                return Select(change(cond, conditional), change(then, True), change(other, True))
            case Read(tensor=name, indices=indices, pad=pad):
                inner = tuple(change(index, conditional) for index in indices)
                if pad is None and conditional and _leaves(scalar, extents, tensors[name], dtypes):
                    pad = Const(0.0 if dtypes[name] in FLOATS else 0, dtypes[name])
                return Read(name, inner, pad)
            case Unary(op=op, arg=arg):
                return Unary(op, change(arg, conditional))
            case Cast(dtype=dtype, arg=arg):
                return Cast(dtype, change(arg, conditional))
            case Binary(op=op, lhs=lhs, rhs=rhs):
                return Binary(op, change(lhs, conditional), change(rhs, conditional))
            case _:
                return scalar

    return change(node, False)


def _leaves(
    read: Read, extents: Mapping[str, int], tensor: Tensor, dtypes: Mapping[str, DType]
) -> bool:
    """Whether a read may leave its tensor."""
    return not is_inside(read, tensor.shape, extents, dtypes)


def _padded(
    select: Select, extents: Mapping[str, int], tensors: Mapping[str, Tensor]
) -> Scalar | None:
    """A selection between a read and a constant, as a padded read.

    None unless the condition includes that the read is inside.
    """
    read = select.then.arg if isinstance(select.then, Cast) else select.then
    if (
        not isinstance(read, Read)
        or read.pad is not None
        or not isinstance(select.other, Const)
        or any(_gathers(read))
    ):
        return None
    tensor = tensors[read.tensor]
    pad = _retyped(select.other, tensor.dtype)
    if pad is None:
        return None
    dtypes = {name: declared.dtype for name, declared in tensors.items()}
    needed = _inside(read, extents, tensor, dtypes)
    tests = [(part, _test(part)) for part in _conjuncts(select.cond)]
    if not needed or not needed <= {test for _, test in tests if test is not None}:
        return None
    padded = Read(read.tensor, read.indices, pad)
    replacement = Cast(select.then.dtype, padded) if isinstance(select.then, Cast) else padded
    rest = [
        part
        for part, test in tests
        if test is None or (test not in needed and not _always(test, extents, dtypes))
    ]
    if not rest:
        return replacement
    return Select(reduce(lambda a, b: Binary("and", a, b), rest), replacement, select.other)


def _gathers(read: Read) -> Iterator[Read]:
    return (inner for index in read.indices for inner in reads(index))


def _retyped(value: Const, dtype: DType) -> Const | None:
    """The constant in a tensor's dtype; None where that cannot hold it exactly."""
    if value.dtype == dtype:
        return value
    if value.dtype in FLOATS and dtype in ("float16", "bfloat16"):
        return (
            Const(value.value, dtype)
            if float(numpy_dtype(dtype).type(value.value)) == value.value
            else None
        )
    low, high = INTEGER_RANGES[dtype] if COMPUTED_IN.get(dtype) == "int32" else (1, 0)
    return (
        Const(int(value.value), dtype)
        if value.dtype in INTEGERS and low <= value.value <= high
        else None
    )


def _conjuncts(node: Scalar) -> Iterator[Scalar]:
    if isinstance(node, Binary) and node.op == "and":
        yield from _conjuncts(node.lhs)
        yield from _conjuncts(node.rhs)
    else:
        yield node


def _test(node: Scalar) -> _Inequality | None:
    """A comparison of integers in normal form; None for any other condition."""
    match node:
        case (
            Binary(op="lt" | "le" as op, lhs=small, rhs=large)
            | Binary(op="gt" | "ge" as op, lhs=large, rhs=small)
        ):
            if any(
                isinstance(part, Read) or (isinstance(part, Const) and part.dtype in FLOATS)
                for part in walk(node)
            ):
                return None
            return _normal(Binary("sub", large, small), 1 if op in ("lt", "gt") else 0)
        case _:
            return None


def _normal(difference: Scalar, least: int) -> _Inequality:
    """`difference >= least`, with its coefficients divided by their common divisor."""
    form = affine(difference)
    factor = gcd(*form.terms.values()) or 1
    terms = frozenset((atom, value // factor) for atom, value in form.terms.items())
    return _Inequality(terms=terms, constant=(form.constant - least) // factor)


def _inside(
    read: Read, extents: Mapping[str, int], tensor: Tensor, dtypes: Mapping[str, DType]
) -> set[_Inequality]:
    """What has to hold for the read to be inside its tensor, besides what always holds."""
    tests: set[_Inequality] = set()
    for index, extent in zip(read.indices, tensor.shape, strict=True):
        values = value_range(index, extents, dtypes)
        if values.low < 0:
            tests.add(_normal(index, 0))
        if values.high >= extent:
            tests.add(_normal(Binary("sub", Const(extent, "int64"), index), 1))
    return tests


def _always(test: _Inequality, extents: Mapping[str, int], dtypes: Mapping[str, DType]) -> bool:
    """Whether the test holds at every point."""
    lows = (value_range(atom, extents, dtypes).scaled(factor).low for atom, factor in test.terms)
    return test.constant + sum(lows) >= 0


# --- stages


def fused(expression: Expression) -> Expression:
    """The program without dead stages, padding copies and separate roundings of reductions."""
    expression = _alive(expression)
    for stage in expression.stages:
        if stage.reducer is None and stage.name not in expression.outputs and _copies_padded(stage):
            expression = _alive(_without(expression, stage))
    for stage in expression.stages:
        expression = _rounding_merged(expression, stage)
    return replace(
        expression, stages=tuple(_true_identity(stage, expression) for stage in expression.stages)
    )


def _alive(expression: Expression) -> Expression:
    """The program without stages that no output depends on."""
    needed, alive = set(expression.outputs), list[Stage]()
    for stage in reversed(expression.stages):
        if stage.name in needed:
            needed |= {read.tensor for read in reads(stage.body)}
            alive.append(stage)
    return replace(expression, stages=tuple(reversed(alive)))


def _copies_padded(stage: Stage) -> bool:
    """Whether the stage is a tensor with padding around it, without arithmetic."""
    body = stage.body
    if isinstance(body, Cast):  # a narrow tensor, computed wide and stored narrow again
        body = body.arg
    return (
        isinstance(body, Read)
        and body.pad is not None
        and body.pad.dtype == stage.dtype
        and not any(_gathers(body))
    )


def _without(expression: Expression, padding: Stage) -> Expression:
    """The program with the padding stage's readers reading through it."""
    tensors = expression.tensors
    source = padding.body.arg if isinstance(padding.body, Cast) else padding.body

    def through(reader: Stage) -> Stage:

        def change(node: Scalar) -> Scalar | None:
            if not isinstance(node, Read) or node.tensor != padding.name or node.pad is not None:
                return None
            indices = (rewrite(index, change) for index in node.indices)
            values = {axis.name: index for axis, index in zip(padding.axes, indices, strict=True)}
            moved = substitute(source, values)
            assert isinstance(moved, Read)
            return Read(moved.tensor, tuple(tidy(index) for index in moved.indices), moved.pad)

        return replace(
            reader,
            body=without_redundant_padding(rewrite(reader.body, change), reader.extents, tensors),
        )

    readers = {stage.name for stage in expression.consumers(padding.name)}
    return replace(
        expression,
        stages=tuple(
            through(stage) if stage.name in readers else stage for stage in expression.stages
        ),
    )


def _rounding_merged(expression: Expression, reduction: Stage) -> Expression:
    """The program with a reduction stored in the dtype of its only reader.

    The reader must only store each of its values in that dtype.
    """
    readers = expression.consumers(reduction.name)
    if reduction.reducer is None or reduction.name in expression.outputs or len(readers) != 1:
        return expression
    (reader,) = readers
    expected = Read(reduction.name, tuple(Var(axis.name) for axis in reader.axes))
    kinds = [
        kind for kind in (FLOATS, INTEGERS) if reduction.dtype in kind and reader.dtype in kind
    ]
    whole = reader.body == expected and reader.tensor.shape == reduction.tensor.shape
    if (
        reader.reducer is not None
        or not whole
        or reduction.accumulator != reduction.dtype
        or not kinds
    ):
        return expression
    merged = replace(reduction, name=reader.name, dtype=reader.dtype)
    stages = tuple(
        merged if stage is reader else stage
        for stage in expression.stages
        if stage.name != reduction.name
    )
    return replace(expression, stages=stages)


def _true_identity(stage: Stage, expression: Expression) -> Stage:
    """A maximum padded with the dtype's lowest number, padded with -inf instead.

    Only if every window has an element. A minimum likewise, with the highest number.
    """
    if stage.reducer not in ("max", "min"):
        return stage
    sign = -1 if stage.reducer == "max" else 1
    body = stage.body.arg if isinstance(stage.body, Cast) else stage.body
    if (
        not isinstance(body, Read)
        or body.pad is None
        or body.pad.dtype not in FLOATS
        or any(_gathers(body))
    ):
        return stage
    if body.pad.value != sign * greatest(body.pad.dtype) or not _never_empty(
        stage, body, expression
    ):
        return stage
    read: Scalar = replace(body, pad=Const(sign * inf, body.pad.dtype))
    return replace(
        stage, body=Cast(stage.body.dtype, read) if isinstance(stage.body, Cast) else read
    )


def _never_empty(stage: Stage, read: Read, expression: Expression) -> bool:
    """Whether at every point of the stage some point of the reduction reads inside."""
    reduced = {axis.name for axis in stage.reduce_axes}
    extents = stage.extents
    used: set[str] = set()
    for index, extent in zip(read.indices, expression.tensor(read.tensor).shape, strict=True):
        names = sorted({part.name for part in walk(index) if isinstance(part, Var)})
        own = [name for name in names if name in reduced]
        outer = [name for name in names if name not in reduced]
        if used & set(own) or prod(extents[name] for name in names) > _MOST_POINTS:
            return False
        used |= set(own)
        for point in product(*(range(extents[name]) for name in outer)):
            inner = product(*(range(extents[name]) for name in own))
            values = (
                _value(index, dict(zip((*outer, *own), (*point, *rest), strict=True)))
                for rest in inner
            )
            if not any(0 <= value < extent for value in values):
                return False
    return True


def _value(index: Scalar, point: Mapping[str, int]) -> int:
    """An integer index at a point.

    -1, which is outside of every tensor, where it is made of anything unusual.
    """
    match index:
        case Var(name=name):
            return point[name]
        case Const(value=value):
            return int(value)
        case Binary(op=op, lhs=lhs, rhs=rhs) if op in ("add", "sub", "mul", "floordiv", "floormod"):
            a, b = _value(lhs, point), _value(rhs, point)
            return (
                {"add": a + b, "sub": a - b, "mul": a * b}[op]
                if op in ("add", "sub", "mul")
                else divmod(a, b)[op == "floormod"]
            )
        case _:
            return -1
