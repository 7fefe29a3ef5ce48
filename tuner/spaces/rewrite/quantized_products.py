"""Sums of products with weights of few bits, which groups of the reduction scale.

The body is a product of a float32 factor x[k], a weight that is made of one byte, and
scales. Weights of four bits lie two to a byte, `w[k // 2]`; what `k % 2` picks of the
byte is a number of a table of sixteen. A zero point may be subtracted from the weight.
Scales and zero points move along the reduction with `k // group` at most, so that they
apply to the sum of a group:

    sum over g of s[g] * (sum over k in g of x[k] * w[k]  -  z[g] * (sum over k in g of x[k]))

The reduction is cut into groups and steps; of weights of four bits also into the bytes
of a word of 32 bits, which is what a step takes for each output, and halves of a byte.

x[k] may also be a number of 8 bits that the weights of four bits meet as float32. Where
the table is sixteen integers in a row, the sum of a group is one of integers then:

    sum over k of x[k] * w[k]  =  sum over k of x[k] * h[k]  +  t * (sum over k of x[k])

with h the four bits and t the first number of the table, which joins the zero point.
Weights of a byte are such integers as they are, taken in fours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from tuner.spaces.program.tiles import add, constant, times
from tuner.spaces.rewrite.access import accesses
from tuner.spaces.rewrite.dot_products import ends_with, pads_with_zero
from tuner.spaces.rewrite.stages import inline_into
from tuner.workload.affine import linear
from tuner.workload.dtypes import DType
from tuner.workload.dual import Dual
from tuner.workload.evaluator import evaluate_stage
from tuner.workload.expression import (
    Axis,
    Binary,
    Cast,
    Const,
    Expression,
    Read,
    Scalar,
    Stage,
    Var,
    children,
    reads,
    rewrite,
    substitute,
    walk,
)

WORD_BYTES = 4  # of weights that one step takes for each output
# Rows up to which weights are unpacked for each product again, and not once for all.
MOST_ROWS = 128
HALF_BITS = 4
HALVES = 2  # of a byte with weights of four bits
BYTES = 256


@dataclass(frozen=True, kw_only=True)
class QuantizedProduct:
    """The stage with its reduction cut, and what the cuts are called."""

    stage: Stage  # its body is `product_of`'s
    groups: str  # reduction axis over groups
    instruction: tuple[str, ...]  # axes within a word, the innermost last; none of whole bytes
    table: tuple[float, ...]  # of sixteen weights; empty for whole bytes, and of integers


@dataclass(frozen=True, kw_only=True)
class Factors:
    """A body as x * w, or x * (w - z), times a scale."""

    shared: Scalar  # x
    weight: Scalar  # w, which reads one byte
    zero_point: Scalar | None  # z
    scale: Scalar | None  # of a group

    @property
    def body(self) -> Scalar:
        weight = self.weight
        if self.zero_point is not None:
            weight = Binary("sub", weight, self.zero_point)
        product = Binary("mul", self.shared, weight)
        return product if self.scale is None else Binary("mul", product, self.scale)

    @staticmethod
    def of(body: Scalar, *, constants: bool = False) -> Factors:
        """Of a body that `body` has made, perhaps with its reads redirected.

        `constants`: whether a zero point may be a constant, and not part of the weight.
        """
        scale: Scalar | None = None
        match body:
            case Binary(lhs=Binary() as product, rhs=factor):
                body, scale = product, factor
        assert isinstance(body, Binary)
        weight, zero_point = split_zero_point(body.rhs, constants=constants)
        return Factors(shared=body.lhs, weight=weight, zero_point=zero_point, scale=scale)


def split_zero_point(factor: Scalar, *, constants: bool = False) -> tuple[Scalar, Scalar | None]:
    """A weight and the zero point that is subtracted from it, if that is read, or any."""
    match factor:
        case Binary(op="sub", lhs=weight, rhs=zero_point) if constants or any(reads(zero_point)):
            return weight, zero_point
    return factor, None


def quantized_product(
    stage: Stage, shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, DType]
) -> QuantizedProduct | None:
    """The stage cut for its weights. None where it is no such sum, or groups hold no
    whole words."""
    if stage.reducer != "sum" or stage.accumulator != "float32":
        return None
    walked = [axis for axis in stage.reduce_axes if axis.extent > 1]
    if len(walked) != 1 or len(stage.reduce_axes) != 1:
        return None
    (axis,) = walked
    factors = _factors(stage.body, axis.name, dtypes)
    if factors is None:
        return None
    table = _table(factors.weight, axis.name)
    if table is None:
        return None
    grouping = [part for part in (factors.zero_point, factors.scale) if part is not None]
    divisors = {size for part in grouping for size in _divisors(part, axis.name) or ()}
    if not table and not grouping:
        return None
    word = WORD_BYTES * HALVES if table else 1
    group = min(divisors, default=-(-axis.extent // word) * word)
    if group % word or any(size % group for size in divisors):
        return None
    return _cut(stage, axis, factors, table, group, shapes, dtypes)


def with_weights_inlined(expression: Expression) -> Expression:
    """The expression with stages that unpack weights inlined into the sums of products that
    read them, where these have few rows and nothing else reads them."""
    dtypes = {name: tensor.dtype for name, tensor in expression.tensors.items()}
    for producer in expression.stages:
        readers = expression.consumers(producer.name)
        if producer.reducer is not None or producer.name in expression.outputs:
            continue
        if len(readers) != 1 or readers[0].points > MOST_ROWS * producer.points:
            continue
        joint = inline_into(readers[0], producer)
        if quantized_product(joint, expression.shapes, dtypes) is not None:
            stages = (
                joint if stage is readers[0] else stage
                for stage in expression.stages
                if stage is not producer
            )
            expression = replace(expression, stages=tuple(stages))
    return expression


def _factors(body: Scalar, axis: str, dtypes: Mapping[str, DType]) -> Factors | None:
    shared: list[Scalar] = []
    weights: list[tuple[Scalar, Scalar | None]] = []
    scales: list[Scalar] = []
    for factor in _multiplied(body):
        weight, zero_point = split_zero_point(factor)
        if _divisors(factor, axis) is not None:
            scales.append(factor)
        elif isinstance(factor, Read) and dtypes[factor.tensor] == "float32":
            shared.append(factor)
        elif _is_weight(weight, dtypes) and (
            zero_point is None or _divisors(zero_point, axis) is not None
        ):
            weights.append((weight, zero_point))
        else:
            return None
    if not shared and len(weights) == 2:
        shared, weights = _with_integers_apart(weights, axis, dtypes)
    if len(shared) != 1 or len(weights) != 1:
        return None
    scale = reduce(lambda a, b: Binary("mul", a, b), scales) if scales else None
    ((weight, zero_point),) = weights
    return Factors(shared=shared[0], weight=weight, zero_point=zero_point, scale=scale)


def _with_integers_apart(
    weights: list[tuple[Scalar, Scalar | None]], axis: str, dtypes: Mapping[str, DType]
) -> tuple[list[Scalar], list[tuple[Scalar, Scalar | None]]]:
    """Of two factors made of bytes a plain number of 8 bits, of two such the first, and the
    other one. None where neither is one."""
    for number, (factor, zero_point) in enumerate(weights):
        read = narrow_read(factor, dtypes)
        if read is not None and zero_point is None and _moves_singly(read, axis):
            return [Cast("float32", read)], [weights[1 - number]]
    return [], weights


def narrow_read(factor: Scalar, dtypes: Mapping[str, DType]) -> Read | None:
    """The 8-bit integer that a factor is as float32. None where it is anything else."""
    match factor:
        case Cast(dtype="float32", arg=(Read() as read) | Cast(dtype="int32", arg=Read() as read)):
            return read if dtypes[read.tensor] in ("int8", "uint8") else None
    return None


def in_integers(product: QuantizedProduct, dtypes: Mapping[str, DType]) -> QuantizedProduct | None:
    """The product with the sums of groups in integers: of x with the four bits themselves,
    which lie below 16. Halves are outside of the bytes within a word then.

    None where x is no integer, or the table not sixteen in a row.
    """
    factors, table = Factors.of(product.stage.body), product.table
    shared = narrow_read(factors.shared, dtypes)
    if not table:
        return _in_fours(product, shared, dtypes)
    if shared is None or table != tuple(table[0] + place for place in range(16)):
        return None
    (packed,) = set(reads(factors.weight))
    within, half = product.instruction
    shift = Cast("int32", times(Var(half), HALF_BITS))
    bits = Binary("bitand", Binary("shr", packed, shift), Const(15, "int32"))
    zero_point: Scalar | None = Const(-table[0], "float32") if table[0] else None
    if factors.zero_point is not None:
        zero_point = (
            factors.zero_point
            if zero_point is None
            else Binary("add", factors.zero_point, zero_point)
        )
    body = Factors(
        shared=Cast("float32", shared),
        weight=Cast("float32", bits),
        zero_point=zero_point,
        scale=factors.scale,
    ).body
    order = {within: 1, half: 0}
    axes = tuple(sorted(product.stage.reduce_axes, key=lambda axis: order.get(axis.name, -1)))
    return replace(
        product,
        stage=replace(product.stage, reduce_axes=axes, body=body),
        instruction=(half, within),
        table=(),
    )


def _in_fours(
    product: QuantizedProduct, shared: Read | None, dtypes: Mapping[str, DType]
) -> QuantizedProduct | None:
    """The product of whole bytes with its steps cut into fours, and constants that are taken
    off its weights among its zero points. None where groups hold no whole fours."""
    factors = Factors.of(product.stage.body)
    zero_point, weight = factors.zero_point, factors.weight
    if zero_point is None:
        weight, zero_point = split_zero_point(weight, constants=True)
    packed = narrow_read(weight, dtypes)
    *groups, steps = product.stage.reduce_axes
    if shared is None or packed is None or steps.extent % WORD_BYTES:
        return None
    names = {axis.name for axis in (*product.stage.axes, *product.stage.reduce_axes)}
    number = Axis(name=_unused(steps.name + "b", names), extent=WORD_BYTES)
    body = Factors(
        shared=Cast("float32", shared),
        weight=Cast("float32", packed),
        zero_point=zero_point,
        scale=factors.scale,
    ).body
    element = add(times(Var(steps.name), WORD_BYTES), Var(number.name))
    axes = (*groups, replace(steps, extent=steps.extent // WORD_BYTES), number)
    return replace(
        product,
        stage=replace(
            product.stage, reduce_axes=axes, body=substitute(body, {steps.name: element})
        ),
        instruction=(number.name,),
    )


def _unused(name: str, names: set[str]) -> str:
    while name in names:
        name += name[-1]
    return name


def _multiplied(node: Scalar) -> Iterator[Scalar]:
    match node:
        case Binary(op="mul", lhs=lhs, rhs=rhs):
            yield from _multiplied(lhs)
            yield from _multiplied(rhs)
        case _:
            yield node


def _is_weight(node: Scalar, dtypes: Mapping[str, DType]) -> bool:
    """Whether a value is made of one byte."""
    sources = set(reads(node))
    return len(sources) == 1 and all(
        dtypes[read.tensor] in ("int8", "uint8") and read.pad is None for read in sources
    )


def _divisors(node: Scalar, axis: str) -> set[int] | None:
    """The sizes of the groups that a value moves with along an axis.

    None where it moves otherwise: within groups, or in halves of bytes.
    """
    match node:
        case Var(name=name) if name == axis:
            return None
        case Binary(op="floordiv", lhs=Var(name=name), rhs=Const(value=size)) if (
            name == axis and size >= WORD_BYTES
        ):
            return {int(size)}
    sizes: set[int] = set()
    for child in children(node):
        inner = _divisors(child, axis)
        if inner is None:
            return None
        sizes |= inner
    return sizes


def _table(weight: Scalar, axis: str) -> tuple[float, ...] | None:
    """The weights by their four bits, the low half of a byte first.

    Empty where each has a byte of its own. None where it is otherwise packed.
    """
    (read,) = set(reads(weight))
    if all(node != Var(axis) for node in _outside(weight, read)):
        return () if _moves_singly(read, axis) else None
    byte = Read("byte", (Var("byte"),))
    numbers = Dual(np.arange(BYTES))
    tables = []
    for half in range(HALVES):

        def chosen(node: Scalar, half: int = half) -> Scalar | None:
            match node:
                case Read():
                    return byte
                case Binary(op="floormod", lhs=Var(name=name), rhs=Const(value=2)) if name == axis:
                    return constant(half)
            return None

        body = rewrite(weight, chosen)
        if any(node == Var(axis) for node in walk(body)):
            return None
        decoded = Stage(
            name="table", axes=(Axis(name="byte", extent=BYTES),), body=body, dtype="float32"
        )
        values = evaluate_stage(decoded, {"byte": numbers}, track=False).value
        tables.append(values.reshape(16, 16).T if half == 0 else values.reshape(16, 16))
    low, high = tables
    if not (np.array_equal(low, high) and (low == low[:, :1]).all()):
        return None
    table = np.asarray(low[:, 0], np.float32)
    return tuple(map(float, table)) if np.isfinite(table).all() else None


def _outside(node: Scalar, read: Read) -> Iterator[Scalar]:
    """The nodes of a tree that are not within a read."""
    if node == read:
        return
    yield node
    for child in children(node):
        yield from _outside(child, read)


def _moves_singly(read: Read, axis: str) -> bool:
    forms = [linear(index) for index in read.indices]
    return all(form is not None for form in forms) and [
        form.coefficient(axis) for form in forms if form is not None and form.coefficient(axis)
    ] == [1]


def _cut(
    stage: Stage,
    axis: Axis,
    factors: Factors,
    table: tuple[float, ...],
    group: int,
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, DType],
) -> QuantizedProduct | None:
    names = {existing.name for existing in (*stage.axes, *stage.reduce_axes)}

    def named(suffix: str) -> str:
        name = axis.name + suffix
        while name in names:
            name += suffix
        names.add(name)
        return name

    groups = Axis(name=named("g"), extent=-(-axis.extent // group))
    steps = Axis(name=axis.name, extent=group // (WORD_BYTES * HALVES) if table else group)
    within = Axis(name=named("b"), extent=WORD_BYTES)
    half = Axis(name=named("h"), extent=HALVES)
    element = add(times(Var(groups.name), steps.extent), Var(steps.name))
    if table:
        byte = add(times(element, WORD_BYTES), Var(within.name))
        element = add(times(byte, HALVES), Var(half.name))

    def cut(node: Scalar) -> Scalar | None:
        match node:
            case Binary(op="floordiv", lhs=Var(name=name), rhs=Const(value=size)) if (
                name == axis.name
            ):
                if size == HALVES and table:
                    return byte
                times_group = int(size) // group
                number: Scalar = Var(groups.name)
                return (
                    number
                    if times_group == 1
                    else Binary("floordiv", number, constant(times_group))
                )
            case Binary(op="floormod", lhs=Var(name=name), rhs=Const(value=2)) if (
                name == axis.name and table
            ):
                return Var(half.name)
            case Var(name=name) if name == axis.name:
                return element
        return None

    (shared,) = reads(factors.shared)
    if axis.extent % group:
        own = {access.read: access for access in accesses(stage, shapes)}
        if not (ends_with(own[shared], axis, shapes) and pads_with_zero(own[shared])):
            return None
    body = rewrite(factors.body, cut)
    if axis.extent % group:
        padded = {shared.tensor, *(read.tensor for read in reads(factors.weight))}
        body = rewrite(
            body,
            lambda node: (
                replace(node, pad=Const(0, dtypes[node.tensor]))
                if isinstance(node, Read) and node.tensor in padded
                else None
            ),
        )
    inner = (within, half) if table else ()
    return QuantizedProduct(
        stage=replace(stage, reduce_axes=(groups, steps, *inner), body=body),
        groups=groups.name,
        instruction=tuple(part.name for part in inner),
        table=table,
    )
