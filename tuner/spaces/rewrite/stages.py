"""Stages as the sketches see them: elementwise ones inlined, reductions done once,
padded reads copied, names plain."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from tuner.spaces.program.tiles import constant
from tuner.spaces.rewrite.access import access, in_bounds
from tuner.spaces.rewrite.predicates import is_plain
from tuner.workload.expression import (
    Binary,
    BinaryOp,
    Cast,
    Const,
    Expression,
    Read,
    Scalar,
    Select,
    Stage,
    Unary,
    Var,
    children,
    reads,
    rewrite,
    substitute,
    walk,
)

APPROXIMATED = frozenset(
    {"exp", "log", "tanh", "erf"}
)  # by polynomials: no instruction computes them
FUNCTION = 32  # operations
TRANSCENDENTAL = APPROXIMATED | {"rsqrt", "sqrt"}


def is_elementwise(stage: Stage) -> bool:
    return stage.reducer is None


def approximated(node: Scalar) -> bool:
    """Whether evaluating the node calls a function for which a polynomial may stand."""
    return any(isinstance(found, Unary) and found.op in APPROXIMATED for found in walk(node))


def costs_mathematics(node: Scalar) -> bool:
    """Whether evaluating the node calls a transcendental function, a power or a
    division: not to be done twice."""
    return any(
        (isinstance(found, Unary) and found.op in TRANSCENDENTAL)
        or (isinstance(found, Binary) and found.op in {"pow", "div"})
        for found in walk(node)
    )


def cost(stage: Stage) -> int:
    """Of all points of a stage, in operations; a function that no instruction computes
    takes as long as FUNCTION of them."""
    functions = sum(
        isinstance(node, Unary) and node.op in APPROXIMATED for node in walk(stage.body)
    )
    return stage.points * (_operations(stage.body) + 1 + FUNCTION * functions)


def _operations(node: Scalar) -> int:
    """What a term costs; what is done to iterators alone is free, as it is in indices."""
    match node:
        case Select(cond=cond, then=then, other=other) if is_plain(cond):
            return _operations(then) + _operations(other)
        case Binary() | Unary():
            return 1 + sum(_operations(child) for child in children(node))
        case Read():
            return 0
        case _:
            return sum(_operations(child) for child in children(node))


def tree(op: BinaryOp, values: list[Scalar]) -> Scalar:
    """A balanced combination, so that additions do not wait for one another."""
    while len(values) > 1:
        paired = [Binary(op, a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = paired + ([values[-1]] if len(values) % 2 else [])
    return values[0]


def call(stage: Stage, indices: tuple[Scalar, ...]) -> Scalar:
    """The value of an elementwise stage at some indices, as it would be read back after
    one rounding to its dtype."""
    value = substitute(
        stage.body, {axis.name: index for axis, index in zip(stage.axes, indices, strict=True)}
    )
    return (
        value
        if stage.dtype in {"float32", "float64", "int32", "int64", "bool"}
        else Cast(stage.dtype, value)
    )


def inline_into(reader: Stage, producer: Stage) -> Stage:
    """The reader with each read of the producer replaced by the producer's value; a
    padded read keeps its padding."""

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
    """The expression with elementwise stages inlined where nothing expensive would be
    computed more often than before.

    A stage stays when it is an output, when it costs mathematics and has several
    readers or is read at more points than it has, when it combines several reads and is
    read at more points than it has, or when it rounds: what is inlined is not stored.
    """
    changed = True
    while changed:
        changed = False
        for stage in expression.stages:
            readers = expression.consumers(stage.name)
            if (
                stage.name in expression.outputs
                or not is_elementwise(stage)
                or not readers
                or _rounds(stage)
            ):
                continue
            costly = costs_mathematics(stage.body)
            if costly and len(readers) > 1:
                continue
            if any(_repeats(reader, stage) for reader in readers) and (
                costly or sum(1 for _ in reads(stage.body)) > 1
            ):
                continue
            stages = tuple(
                inline_into(other, stage) if other in readers else other
                for other in expression.stages
                if other is not stage
            )
            expression = replace(expression, stages=stages)
            changed = True
            break
    return expression


def hoisted(expression: Expression) -> Expression:
    """The expression with each reduction done once for all points of axes that its body
    does not move with, and then copied."""
    names = {tensor.name for tensor in expression.inputs} | {
        stage.name for stage in expression.stages
    }
    stages: list[Stage] = []
    for stage in expression.stages:
        moving = {node.name for node in walk(stage.body) if isinstance(node, Var)}
        still = [axis for axis in stage.axes if axis.extent > 1 and axis.name not in moving]
        if stage.reducer is None or not still:
            stages.append(stage)
            continue
        kept = tuple(axis for axis in stage.axes if axis not in still) or (
            replace(stage.axes[0], extent=1),
        )
        name = next(
            free for n in range(len(names) + 1) if (free := f"{stage.name}x{n}") not in names
        )
        names.add(name)
        place = tuple(
            Const(0, "int64") if axis not in stage.axes else Var(axis.name) for axis in kept
        )
        stages.append(replace(stage, name=name, axes=kept))
        stages.append(
            Stage(name=stage.name, axes=stage.axes, body=Read(name, place), dtype=stage.dtype)
        )
    return replace(expression, stages=tuple(stages))


def materialized(expression: Expression) -> Expression:
    """The expression with what a reduction to a single point reads of a padded tensor
    copied first, padding and all.

    Such a reduction has no axis but its own to make vectors of, and what may lie
    outside is not read as vectors.
    """
    tensors = expression.tensors
    stages: list[Stage] = []
    for stage in expression.stages:
        if stage.reducer is None or any(axis.extent > 1 for axis in stage.axes):
            stages.append(stage)
            continue
        body = substitute(stage.body, {axis.name: constant(0) for axis in stage.axes})
        copies: dict[Read, Scalar] = {}
        for read in dict.fromkeys(reads(body)):
            found = access(read, tensors[read.tensor].shape, stage.extents)
            axes = tuple(axis for axis in stage.reduce_axes if axis.name in found.axes)
            if not found.padded or found.gathered or not axes:
                continue
            name = next(
                free
                for n in range(len(tensors) + 1)
                if (free := f"{stage.name}p{n}") not in tensors
            )
            copy = Stage(name=name, axes=axes, body=read, dtype=tensors[read.tensor].dtype)
            tensors[name] = copy.tensor
            stages.append(copy)
            copies[read] = Read(name, tuple(Var(axis.name) for axis in axes))
        stages.append(replace(stage, body=_with_copies(body, copies)) if copies else stage)
    return replace(expression, stages=tuple(stages))


def _with_copies(body: Scalar, copies: Mapping[Read, Scalar]) -> Scalar:
    return rewrite(body, lambda node: copies.get(node) if isinstance(node, Read) else None)


def plainly_named(expression: Expression) -> Expression:
    """The same expression without underscores in its names: what a sketch adds to a
    name is told by its underscore."""
    tensors = _plain(
        [tensor.name for tensor in expression.inputs] + [stage.name for stage in expression.stages]
    )

    def renamed(stage: Stage) -> Stage:
        axes = _plain([axis.name for axis in (*stage.axes, *stage.reduce_axes)])

        def change(node: Scalar) -> Scalar | None:
            if isinstance(node, Read):
                return Read(
                    tensors[node.tensor],
                    tuple(rewrite(index, change) for index in node.indices),
                    node.pad,
                )
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


def names(expression: Expression) -> set[str]:
    """Of its tensors."""
    return {tensor.name for tensor in expression.inputs} | {
        stage.name for stage in expression.stages
    }


def renamed(expression: Expression, suffix: str) -> Expression:
    """The expression with its stages under new names, so that knobs of a rewritten one
    are others than those of the original."""
    new: dict[str, str] = {}
    for stage in expression.stages:
        new[stage.name] = unused(f"{stage.name}{suffix}", {*names(expression), *new.values()})

    def change(node: Scalar) -> Scalar | None:
        if not isinstance(node, Read):
            return None
        return Read(
            new.get(node.tensor, node.tensor),
            tuple(rewrite(index, change) for index in node.indices),
            node.pad,
        )

    stages = tuple(
        replace(stage, name=new[stage.name], body=rewrite(stage.body, change))
        for stage in expression.stages
    )
    return replace(
        expression, stages=stages, outputs=tuple(new[name] for name in expression.outputs)
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
        plain[name] = next(
            free
            for free in (stem, *(f"{stem}x{n}" for n in range(len(names))))
            if free not in plain.values()
        )
    return plain


def _rounds(stage: Stage) -> bool:
    return any(isinstance(node, Unary) and node.op == "bfloat16" for node in walk(stage.body))


def _repeats(reader: Stage, producer: Stage) -> bool:
    """Whether the reader reads points of the producer more than once."""
    points = 1
    for axis in (*reader.axes, *reader.reduce_axes):
        points *= axis.extent
    size = 1
    for extent in producer.tensor.shape:
        size *= extent
    return points > size
