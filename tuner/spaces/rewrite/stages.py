"""Normalisation of stages for sketches.

Elementwise stages are inlined, invariant reductions hoisted, padded reads copied, and
names made plain.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from tuner.errors import WorkloadError
from tuner.spaces.program.tiles import constant
from tuner.spaces.rewrite.access import access, in_bounds_condition
from tuner.spaces.rewrite.predicates import is_iterator_condition
from tuner.workload.bounds import check_bounds, with_conditional_padding
from tuner.workload.dtypes import COMPUTED_IN, FLOATS
from tuner.workload.expression import (
    Binary,
    BinaryOp,
    Cast,
    Const,
    Expression,
    RaggedRange,
    Read,
    Scalar,
    Scattering,
    Select,
    Stage,
    Unary,
    Var,
    children,
    reads,
    rewrite,
    rows_from_data,
    substitute,
    walk,
)
from tuner.workload.scalar_operators import BINARY_OPERATORS, UNARY_OPERATORS, UnaryOperator

FUNCTION_OPERATIONS = 32  # operations that an approximated function takes as long as


def is_elementwise(stage: Stage) -> bool:
    return stage.reducer is None


def approximated_functions(node: Scalar) -> int:
    """Number of functions in the node that a polynomial may approximate."""
    return sum(
        isinstance(part, Unary) and UNARY_OPERATORS[part.op].is_approximated for part in walk(node)
    )


def stored_narrow(expression: Expression) -> Expression:
    """The expression with maps that make 8-bit integers stored as such, and not as the
    integers of 32 bits that they are computed with."""
    stages: list[Stage] = []
    narrow: set[str] = set()

    def widened(node: Scalar) -> Scalar | None:
        if not (isinstance(node, Read) and node.tensor in narrow):
            return None
        indices = tuple(rewrite(index, widened) for index in node.indices)
        return Cast("int32", replace(node, indices=indices))

    for stage in expression.stages:
        body = rewrite(stage.body, widened)
        match body:
            case Cast(dtype="int32", arg=Cast(dtype="int8" | "uint8" as dtype)) if (
                is_elementwise(stage) and stage.name not in expression.outputs
            ):
                narrow.add(stage.name)
                stages.append(replace(stage, body=body.arg, dtype=dtype))
            case _:
                stages.append(replace(stage, body=body))
    return replace(expression, stages=tuple(stages)) if narrow else expression


def is_expensive(node: Scalar) -> bool:
    """Whether evaluating the node twice is too expensive.

    That holds for transcendental functions, powers and divisions.
    """
    return any(
        (isinstance(part, Unary) and _takes_long(UNARY_OPERATORS[part.op]))
        or (isinstance(part, Binary) and BINARY_OPERATORS[part.op].is_expensive)
        for part in walk(node)
    )


def _takes_long(operator: UnaryOperator) -> bool:
    return operator.is_function and not operator.is_instruction


def cost(stage: Stage) -> int:
    """Operations of all points of a stage.

    An approximated function counts as `FUNCTION_OPERATIONS`.
    """
    functions = approximated_functions(stage.body)
    return stage.points * (_operations(stage.body) + 1 + FUNCTION_OPERATIONS * functions)


def _operations(node: Scalar) -> int:
    """Operations of one evaluation; conditions and indices of iterators are free."""
    match node:
        case Select(cond=cond, then=then, other=other) if is_iterator_condition(cond):
            return _operations(then) + _operations(other)
        case Binary() | Unary():
            return 1 + sum(_operations(child) for child in children(node))
        case Read():
            return 0
        case _:
            return sum(_operations(child) for child in children(node))


def balanced_tree(op: BinaryOp, values: list[Scalar]) -> Scalar:
    """A balanced tree of one operator, so that operations do not wait for each other."""
    while len(values) > 1:
        paired = [Binary(op, a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = paired + ([values[-1]] if len(values) % 2 else [])
    return values[0]


def value_at(stage: Stage, indices: tuple[Scalar, ...]) -> Scalar:
    """The value of an elementwise stage at some indices, as integers wrapped to its dtype. What
    is not stored is not rounded to a narrow float, unless the stage converts to it."""
    value = substitute(
        stage.body, {axis.name: index for axis, index in zip(stage.axes, indices, strict=True)}
    )
    is_narrow = stage.dtype not in {*FLOATS, "int32", "int64", "bool"}
    may_wrap = stage.dtype == "int32" and any(
        isinstance(part, Binary) and part.op in ("mul", "shl") for part in walk(stage.body)
    )
    return Cast(stage.dtype, value) if is_narrow or may_wrap else value


def inline_into(reader: Stage, producer: Stage) -> Stage:
    """The reader with each read of the producer replaced by the producer's value.

    Padded reads keep their padding.
    """

    def change(node: Scalar) -> Scalar | None:
        if not (isinstance(node, Read) and node.tensor == producer.name):
            return None
        indices = tuple(rewrite(index, change) for index in node.indices)
        value = value_at(producer, indices)
        if node.pad is None:
            return value
        inside = in_bounds_condition(indices, producer.tensor.shape, reader.extents)
        if inside is None:
            return value
        is_narrow = node.pad.dtype in ("float16", "bfloat16")
        pad = replace(node.pad, dtype=COMPUTED_IN[node.pad.dtype]) if is_narrow else node.pad
        return Select(inside, value, pad)

    return replace(reader, body=rewrite(reader.body, change))


def inlined(expression: Expression) -> Expression:
    """The expression with elementwise stages inlined, unless that repeats expensive work.

    A stage stays

    - if it is an output;
    - if it is expensive and has several readers, or is read at more points than it has;
    - if it combines several reads and is read at more points than it has;
    - if it rounds, because what is inlined is not stored;
    - if it is read in an index, and arithmetic that may wrap around would come into one;
    - if it says which terms a row of a reader reduces, which is known by its form.
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
                or any(_names_rows(stage.name, reader) for reader in readers)
            ):
                continue
            costly = is_expensive(stage.body)
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
            joint = replace(expression, stages=stages)
            if any(_is_index(stage.name, reader) for reader in readers) and not _is_sound(joint):
                continue
            expression = joint
            changed = True
            break
    return expression


def inlined_within_bounds(expression: Expression) -> Expression:
    """The expression with elementwise stages inlined. Where a stage was read with padding,
    what it reads is padded, since only a condition keeps it inside now."""
    tensors = {tensor.name: tensor for tensor in expression.inputs}
    stages = []
    for stage in inlined(expression).stages:
        body = with_conditional_padding(stage.body, stage.extents, tensors)
        stages.append(replace(stage, body=body))
        tensors[stage.name] = stage.tensor
    return replace(expression, stages=tuple(stages))


def _is_index(tensor: str, reader: Stage) -> bool:
    """Whether a stage computes an index from a tensor."""
    indices = (index for read in reads(reader.body) for index in read.indices)
    return any(read.tensor == tensor for index in indices for read in reads(index))


def _is_sound(expression: Expression) -> bool:
    """Whether no index leaves its tensor or wraps around."""
    try:
        check_bounds(expression)
    except WorkloadError:
        return False
    return True


def hoisted(expression: Expression) -> Expression:
    """The expression with reductions hoisted out of axes on which they do not depend.

    They are computed once and then copied along those axes.
    """
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
    """The expression with copies of padded reads of reductions to a single point.

    Such a reduction can only be vectorised along its own axis, and reads that may lie
    outside their tensor are not vectorised.
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
            own_access = access(read, tensors[read.tensor].shape, stage.extents)
            axes = tuple(axis for axis in stage.reduce_axes if axis.name in own_access.axes)
            if not own_access.padded or own_access.gathered or not axes:
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
    """The same expression without underscores in its names.

    An underscore separates what sketches append to names.
    """
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


def tensor_names(expression: Expression) -> set[str]:
    """Names of all tensors of an expression."""
    return {tensor.name for tensor in expression.inputs} | {
        stage.name for stage in expression.stages
    }


def renamed(expression: Expression, suffix: str) -> Expression:
    """The expression with a suffix to the names of its stages.

    The knobs of a rewritten expression are named after them, and so differ from the
    original's.
    """
    new: dict[str, str] = {}
    for stage in expression.stages:
        new[stage.name] = fresh_name(
            f"{stage.name}{suffix}", {*tensor_names(expression), *new.values()}
        )

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


def fresh_name(name: str, reserved: Collection[str]) -> str:
    """The name, made longer until it is not reserved."""
    while name in reserved:
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
    """Whether the reader has more points than the producer."""
    points = 1
    for axis in (*reader.axes, *reader.reduce_axes):
        points *= axis.extent
    size = 1
    for extent in producer.tensor.shape:
        size *= extent
    return points > size


def _names_rows(tensor: str, stage: Stage) -> bool:
    """Whether a tensor says which terms a row of a stage reduces."""
    match rows_from_data(stage):
        case RaggedRange(splits=splits):
            return tensor == splits
        case Scattering(index=index):
            return tensor == index.tensor
    return False
