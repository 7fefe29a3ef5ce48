"""Stages as the sketches see them: elementwise stages inlined, reads classified by how they move with each axis."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.spaces.tiles import add, constant, times
from tuner.workload.expression import (
    Binary,
    Cast,
    Const,
    Expression,
    Read,
    Scalar,
    Select,
    Stage,
    Unary,
    Var,
    reads,
    rewrite,
    substitute,
    walk,
)

APPROXIMATED = frozenset({"exp", "log", "tanh", "erf"})  # by polynomials: no instruction computes them
TRANSCENDENTAL = APPROXIMATED | {"rsqrt", "sqrt"}


def is_elementwise(stage: Stage) -> bool:
    return stage.reducer is None


def approximated(node: Scalar) -> bool:
    """Whether evaluating the node calls a function for which a polynomial may stand."""
    return any(isinstance(found, Unary) and found.op in APPROXIMATED for found in walk(node))


def costs_mathematics(node: Scalar) -> bool:
    """Whether evaluating the node calls a transcendental function, a power or a division: not to be done twice."""
    return any(
        (isinstance(found, Unary) and found.op in TRANSCENDENTAL) or (isinstance(found, Binary) and found.op in {"pow", "div"})
        for found in walk(node)
    )


def call(stage: Stage, indices: tuple[Scalar, ...]) -> Scalar:
    """The value of an elementwise stage at some indices, as it would be read back after one rounding to its dtype."""
    value = substitute(stage.body, {axis.name: index for axis, index in zip(stage.axes, indices, strict=True)})
    return value if stage.dtype in {"float32", "float64", "int32", "int64", "bool"} else Cast(stage.dtype, value)


def inline_into(reader: Stage, producer: Stage) -> Stage:
    """The reader with each read of the producer replaced by the producer's value; a padded read keeps its padding."""

    def change(node: Scalar) -> Scalar | None:
        if not (isinstance(node, Read) and node.tensor == producer.name):
            return None
        indices = tuple(rewrite(index, change) for index in node.indices)
        value = call(producer, indices)
        if node.pad is None:
            return value
        inside = in_bounds(indices, producer.tensor.shape, reader.extents)
        return value if inside is None else Select(inside, value, node.pad)

    return replace(reader, body=rewrite(reader.body, change))


def inlined(expression: Expression) -> Expression:
    """The expression with elementwise stages inlined where nothing expensive would be computed more often than before.

    A stage stays when it is an output, when it costs mathematics and has several readers or is read at more points than it has,
    or when it combines several reads and is read at more points than it has.
    """
    changed = True
    while changed:
        changed = False
        for stage in expression.stages:
            readers = expression.consumers(stage.name)
            if stage.name in expression.outputs or not is_elementwise(stage) or not readers:
                continue
            costly = costs_mathematics(stage.body)
            if costly and len(readers) > 1:
                continue
            if any(_repeats(reader, stage) for reader in readers) and (costly or sum(1 for _ in reads(stage.body)) > 1):
                continue
            stages = tuple(
                inline_into(other, stage) if other in readers else other for other in expression.stages if other is not stage
            )
            expression = replace(expression, stages=stages)
            changed = True
            break
    return expression


def hoisted(expression: Expression) -> Expression:
    """The expression with each reduction done once for all points of axes that its body does not move with, and then copied."""
    names = {tensor.name for tensor in expression.inputs} | {stage.name for stage in expression.stages}
    stages: list[Stage] = []
    for stage in expression.stages:
        moving = {node.name for node in walk(stage.body) if isinstance(node, Var)}
        still = [axis for axis in stage.axes if axis.extent > 1 and axis.name not in moving]
        if stage.reducer is None or not still:
            stages.append(stage)
            continue
        kept = tuple(axis for axis in stage.axes if axis not in still) or (replace(stage.axes[0], extent=1),)
        name = next(free for n in range(len(names) + 1) if (free := f"{stage.name}x{n}") not in names)
        names.add(name)
        place = tuple(Const(0, "int64") if axis not in stage.axes else Var(axis.name) for axis in kept)
        stages.append(replace(stage, name=name, axes=kept))
        stages.append(Stage(name=stage.name, axes=stage.axes, body=Read(name, place), dtype=stage.dtype))
    return replace(expression, stages=tuple(stages))


def materialized(expression: Expression) -> Expression:
    """The expression with what a reduction to a single point reads of a padded tensor copied first, padding and all.

    Only what lies side by side can be read as vectors, and such a reduction has no axis but its own to make them of.
    """
    tensors = {tensor.name: tensor for tensor in (*expression.inputs, *(stage.tensor for stage in expression.stages))}
    stages: list[Stage] = []
    for stage in expression.stages:
        alone = stage.reducer is not None and all(axis.extent == 1 for axis in stage.axes)
        copies: dict[Read, Scalar] = {}
        for read in dict.fromkeys(reads(stage.body)) if alone else ():
            names = {node.name for index in read.indices for node in walk(index) if isinstance(node, Var)}
            gathered = any(isinstance(node, Read) for index in read.indices for node in walk(index))
            axes = tuple(axis for axis in stage.reduce_axes if axis.name in names)
            padded = access(read, tensors[read.tensor].shape, stage.extents).padded
            if not padded or gathered or not axes or names - {axis.name for axis in axes}:
                continue
            name = next(free for n in range(len(tensors) + 1) if (free := f"{stage.name}p{n}") not in tensors)
            copy = Stage(name=name, axes=axes, body=read, dtype=tensors[read.tensor].dtype)
            tensors[name] = copy.tensor
            stages.append(copy)
            copies[read] = Read(name, tuple(Var(axis.name) for axis in axes))
        stages.append(replace(stage, body=_with_copies(stage.body, copies)))
    return replace(expression, stages=tuple(stages))


def _with_copies(body: Scalar, copies: Mapping[Read, Scalar]) -> Scalar:
    return rewrite(body, lambda node: copies.get(node) if isinstance(node, Read) else None)


def plainly_named(expression: Expression) -> Expression:
    """The same expression without underscores in its names: what a sketch adds to a name is told by its underscore."""
    tensors = _plain([tensor.name for tensor in expression.inputs] + [stage.name for stage in expression.stages])

    def renamed(stage: Stage) -> Stage:
        axes = _plain([axis.name for axis in (*stage.axes, *stage.reduce_axes)])

        def change(node: Scalar) -> Scalar | None:
            if isinstance(node, Read):
                return Read(tensors[node.tensor], tuple(rewrite(index, change) for index in node.indices), node.pad)
            return Var(axes[node.name]) if isinstance(node, Var) else None

        return replace(
            stage,
            name=tensors[stage.name],
            axes=tuple(replace(axis, name=axes[axis.name]) for axis in stage.axes),
            reduce_axes=tuple(replace(axis, name=axes[axis.name]) for axis in stage.reduce_axes),
            body=rewrite(stage.body, change),
        )

    return replace(
        expression,
        inputs=tuple(replace(tensor, name=tensors[tensor.name]) for tensor in expression.inputs),
        stages=tuple(renamed(stage) for stage in expression.stages),
        outputs=tuple(tensors[name] for name in expression.outputs),
    )


def unused(name: str, taken: Collection[str]) -> str:
    """The name, made longer until it is none of those taken."""
    while name in taken:
        name += "x"
    return name


def _plain(names: list[str]) -> dict[str, str]:
    plain: dict[str, str] = {}
    for name in names:
        stem = name.replace("_", "") or "x"
        plain[name] = next(free for free in (stem, *(f"{stem}x{n}" for n in range(len(names)))) if free not in plain.values())
    return plain


def _repeats(reader: Stage, producer: Stage) -> bool:
    """Whether the reader reads points of the producer more than once."""
    points = 1
    for axis in (*reader.axes, *reader.reduce_axes):
        points *= axis.extent
    size = 1
    for extent in producer.tensor.shape:
        size *= extent
    return points > size


# --- index arithmetic -------------------------------------------------------------------------------------------------


def bounds(node: Scalar, extents: Mapping[str, int]) -> tuple[int, int] | None:
    """Least and greatest value of an integer index over 0 <= v < extents[v], or None where it is not known (a gather)."""
    form = linear(node)
    if form is not None:
        if not form.coefficients.keys() <= extents.keys():
            return None
        ends = [sorted((0, step * (extents[name] - 1))) for name, step in form.coefficients.items()]
        return form.constant + sum(low for low, _ in ends), form.constant + sum(high for _, high in ends)
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


def in_bounds(indices: tuple[Scalar, ...], shape: tuple[int, ...], extents: Mapping[str, int]) -> Scalar | None:
    """The condition under which all indices are inside the shape, None where that always holds."""
    condition: Scalar | None = None
    for index, extent in zip(indices, shape, strict=True):
        found = bounds(index, extents)
        tests = []
        if found is None or found[0] < 0:
            tests.append(Binary("ge", index, Const(0, "int64")))
        if found is None or found[1] >= extent:
            tests.append(Binary("lt", index, Const(extent, "int64")))
        for test in tests:
            condition = test if condition is None else Binary("and", condition, test)
    return condition


def unpadded(node: Scalar, shapes: Mapping[str, tuple[int, ...]], extents: Mapping[str, int]) -> Scalar:
    """The tree with padded reads made explicit: a selection where a read may leave its tensor, a plain read where it cannot."""

    def change(found: Scalar) -> Scalar | None:
        if not (isinstance(found, Read) and found.pad is not None):
            return None
        indices = tuple(rewrite(index, change) for index in found.indices)
        inside = in_bounds(indices, shapes[found.tensor], extents)
        plain = Read(found.tensor, indices)
        return plain if inside is None else Select(inside, plain, found.pad)

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
                {name: total for name in names if (total := a.coefficient(name) + sign * b.coefficient(name))},
                a.constant + sign * b.constant,
            )
        case Binary(op="mul", lhs=lhs, rhs=rhs):
            a, b = linear(lhs), linear(rhs)
            if a is None or b is None or (a.coefficients and b.coefficients):
                return None
            form, factor = (a, b.constant) if a.coefficients else (b, a.constant)
            scaled = {name: value * factor for name, value in form.coefficients.items() if value * factor}
            return Linear(scaled, form.constant * factor)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Access:
    """How one read of a stage moves through memory."""

    read: Read
    axes: frozenset[str]  # iterators that its indices depend on
    strides: Mapping[str, int] | None  # elements moved per step of each iterator; None where not linear
    padded: bool  # may leave the tensor (before padding is made explicit)
    gathered: bool  # an index is itself read from a tensor

    def stride(self, axis: str) -> int | None:
        """Elements moved by one step of the axis, None where that is not constant."""
        if axis not in self.axes:
            return 0
        return None if self.strides is None else self.strides.get(axis, 0)

    def divides(self, axis: str) -> bool:
        """Whether different values of the axis read different parts: it moves one dimension, one by one, and alone."""
        forms = [linear(index) for index in self.read.indices]
        moved = [form for form in forms if form is None or form.coefficient(axis)]
        return len(moved) == 1 and moved[0] is not None and dict(moved[0].coefficients) == {axis: 1}


def accesses(stage: Stage, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Access, ...]:
    """The distinct reads of a stage, in order of appearance."""
    extents = stage.extents
    return tuple(access(read, shapes[read.tensor], extents) for read in dict.fromkeys(reads(stage.body)))


def access(read: Read, shape: tuple[int, ...], extents: Mapping[str, int]) -> Access:
    axes = frozenset(found.name for index in read.indices for found in walk(index) if isinstance(found, Var))
    gathered = any(isinstance(found, Read) for index in read.indices for found in walk(index))
    walked = _walked(read.indices, shape)
    strides: dict[str, int] = {}
    step = 1
    for form, extent in reversed(walked):
        for name, value in form.coefficients.items() if form is not None else ():
            strides[name] = strides.get(name, 0) + value * step
        step *= extent
    padded = read.pad is not None and in_bounds(read.indices, shape, extents) is not None
    return Access(read, axes, None if any(form is None for form, _ in walked) else strides, padded, gathered)


def _walked(indices: Sequence[Scalar], shape: Sequence[int]) -> list[tuple[Linear | None, int]]:
    """Each dimension's index and extent; two that a quotient and its remainder walk are one."""
    found: list[tuple[Linear | None, int]] = []
    before: Scalar | None = None
    for index, extent in zip(indices, shape, strict=True):
        match before, index:
            case Binary(op="floordiv", lhs=whole, rhs=Const(value=by)), Binary(
                op="floormod", lhs=same, rhs=Const(value=also)
            ) if whole == same and by == also == extent:
                _, blocks = found.pop()
                found.append((linear(whole), blocks * extent))
            case _:
                found.append((linear(index), extent))
        before = index
    return found
