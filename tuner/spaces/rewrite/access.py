"""Indices as arithmetic: where they can lie, as linear forms, and how the reads of a
stage move through memory with each axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.spaces.program.tiles import add, constant, times
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
    reads,
    rewrite,
    walk,
)


def bounds(node: Scalar, extents: Mapping[str, int]) -> tuple[int, int] | None:
    """Least and greatest value of an integer index over 0 <= v < extents[v], or None
    where it is not known (a gather)."""
    form = linear(node)
    if form is not None:
        if not form.coefficients.keys() <= extents.keys():
            return None
        ends = [sorted((0, step * (extents[name] - 1))) for name, step in form.coefficients.items()]
        return form.constant + sum(low for low, _ in ends), form.constant + sum(
            high for _, high in ends
        )
    match node:
        case Binary(op=op, lhs=lhs, rhs=rhs):
            a, b = bounds(lhs, extents), bounds(rhs, extents)
            if a is None or b is None:
                return None
            return _binary_bounds(op, a, b)
        case Cast(arg=arg):
            return bounds(arg, extents)
        case Unary(op="neg", arg=arg):
            inner = bounds(arg, extents)
            return None if inner is None else (-inner[1], -inner[0])
        case _:
            return None


def _binary_bounds(op: str, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int] | None:
    match op:
        case "add":
            return a[0] + b[0], a[1] + b[1]
        case "sub":
            return a[0] - b[1], a[1] - b[0]
        case "mul":
            products = [x * y for x in a for y in b]
            return min(products), max(products)
        case "floordiv" if b[0] == b[1] > 0:
            return a[0] // b[0], a[1] // b[0]
        case "floormod" if b[0] == b[1] > 0:
            if a[0] // b[0] == a[1] // b[0]:
                return a[0] % b[0], a[1] % b[0]
            return 0, b[0] - 1
        case "min":
            return min(a[0], b[0]), min(a[1], b[1])
        case "max":
            return max(a[0], b[0]), max(a[1], b[1])
        case "xor" if a[0] >= 0 and b[0] >= 0:
            return 0, (1 << max(a[1], b[1]).bit_length()) - 1
        case _:
            return None


def in_bounds_condition(
    indices: tuple[Scalar, ...], shape: tuple[int, ...], extents: Mapping[str, int]
) -> Scalar | None:
    """The condition under which all indices are inside the shape, None where that always holds."""
    condition: Scalar | None = None
    for index, extent in zip(indices, shape, strict=True):
        interval = bounds(index, extents)
        tests = []
        if interval is None or interval[0] < 0:
            tests.append(Binary("ge", index, Const(0, "int64")))
        if interval is None or interval[1] >= extent:
            tests.append(Binary("lt", index, Const(extent, "int64")))
        for test in tests:
            condition = test if condition is None else Binary("and", condition, test)
    return condition


def with_explicit_padding(
    node: Scalar, shapes: Mapping[str, tuple[int, ...]], extents: Mapping[str, int]
) -> Scalar:
    """The tree with padded reads made explicit: a selection where a read may leave its
    tensor, a plain read where it cannot."""

    def change(node: Scalar) -> Scalar | None:
        if not (isinstance(node, Read) and node.pad is not None):
            return None
        indices = tuple(rewrite(index, change) for index in node.indices)
        inside = in_bounds_condition(indices, shapes[node.tensor], extents)
        plain = Read(node.tensor, indices)
        return plain if inside is None else Select(inside, plain, node.pad)

    return rewrite(node, change)


@dataclass(frozen=True, slots=True)
class Linear:
    """An index as sum of coefficient * axis + constant."""

    coefficients: Mapping[str, int]
    constant: int

    def coefficient(self, axis: str) -> int:
        return self.coefficients.get(axis, 0)

    @property
    def index(self) -> Scalar:
        """The form written out."""
        total: Scalar = constant(0)
        for name, step in self.coefficients.items():
            total = add(total, times(Var(name), step))
        return add(total, constant(self.constant))


def linear(node: Scalar) -> Linear | None:
    """The index as a linear form, or None where it is not one."""
    match node:
        case Var(name=name):
            return Linear({name: 1}, 0)
        case Const(value=value):
            return Linear({}, int(value))
        case Binary(op="add" | "sub" as op, lhs=lhs, rhs=rhs):
            a, b = linear(lhs), linear(rhs)
            if a is None or b is None:
                return None
            sign = 1 if op == "add" else -1
            names = dict.fromkeys((*a.coefficients, *b.coefficients))
            return Linear(
                {
                    name: total
                    for name in names
                    if (total := a.coefficient(name) + sign * b.coefficient(name))
                },
                a.constant + sign * b.constant,
            )
        case Binary(op="mul", lhs=lhs, rhs=rhs):
            a, b = linear(lhs), linear(rhs)
            if a is None or b is None or (a.coefficients and b.coefficients):
                return None
            form, factor = (a, b.constant) if a.coefficients else (b, a.constant)
            scaled = {
                name: value * factor for name, value in form.coefficients.items() if value * factor
            }
            return Linear(scaled, form.constant * factor)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Access:
    """How one read of a stage moves through memory."""

    read: Read
    axes: frozenset[str]  # iterators that its indices depend on
    strides: (
        Mapping[str, int] | None
    )  # elements moved per step of each iterator; None where not linear
    padded: bool  # may leave the tensor (before padding is made explicit)
    gathered: bool  # an index is itself read from a tensor

    def stride(self, axis: str) -> int | None:
        """Elements moved by one step of the axis, None where that is not constant."""
        if axis not in self.axes:
            return 0
        return None if self.strides is None else self.strides.get(axis, 0)

    def divides(self, axis: str) -> bool:
        """Whether different values of the axis read different parts: it moves one
        dimension, one by one, and alone."""
        forms = [linear(index) for index in self.read.indices]
        moved = [form for form in forms if form is None or form.coefficient(axis)]
        return len(moved) == 1 and moved[0] is not None and dict(moved[0].coefficients) == {axis: 1}


def accesses(stage: Stage, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Access, ...]:
    """The distinct reads of a stage, in order of appearance."""
    extents = stage.extents
    return tuple(
        access(read, shapes[read.tensor], extents) for read in dict.fromkeys(reads(stage.body))
    )


def access(read: Read, shape: tuple[int, ...], extents: Mapping[str, int]) -> Access:
    axes = frozenset(
        part.name for index in read.indices for part in walk(index) if isinstance(part, Var)
    )
    gathered = any(isinstance(part, Read) for index in read.indices for part in walk(index))
    walked = _merged_dimensions(read.indices, shape)
    strides: dict[str, int] = {}
    step = 1
    for form, extent in reversed(walked):
        for name, value in form.coefficients.items() if form is not None else ():
            strides[name] = strides.get(name, 0) + value * step
        step *= extent
    padded = read.pad is not None and in_bounds_condition(read.indices, shape, extents) is not None
    return Access(
        read, axes, None if any(form is None for form, _ in walked) else strides, padded, gathered
    )


def _merged_dimensions(
    indices: Sequence[Scalar], shape: Sequence[int]
) -> list[tuple[Linear | None, int]]:
    """Each dimension's index and extent; two that a quotient and its remainder walk are one."""
    dimensions: list[tuple[Linear | None, int]] = []
    before: Scalar | None = None
    for index, extent in zip(indices, shape, strict=True):
        match before, index:
            case Binary(op="floordiv", lhs=whole, rhs=Const(value=by)), Binary(
                op="floormod", lhs=same, rhs=Const(value=also)
            ) if whole == same and by == also == extent:
                _, blocks = dimensions.pop()
                dimensions.append((linear(whole), blocks * extent))
            case _:
                dimensions.append((linear(index), extent))
        before = index
    return dimensions
