"""Lower bounds on the operations and the memory traffic of any kernel for a workload.

The bounds are derived from the form of the expression. They may be too low, never too
high.

- An operator of the catalogue needs each of its operations and all of its inputs,
  except elements that strides skip and table rows that no index names.
- A program in the notation may read a corner of a large tensor, compute values that no
  output depends on, repeat itself along an axis, or mask most of its work. A kernel may
  leave all of that out, so none of it counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import expm1, log1p, prod

from tuner.workload.affine import affine, linear
from tuner.workload.bounds import is_inside
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import (
    Binary,
    Expression,
    Read,
    Scalar,
    Select,
    Stage,
    Unary,
    Var,
    children,
    reads,
    walk,
)
from tuner.workload.workload import Workload

MAX_ENUMERATED_POINTS = 1 << 16  # iteration points over which one index is enumerated


def least_flops(workload: Workload) -> int:
    """Arithmetic operations that every kernel does; a multiply-add counts as 2."""
    expression = workload.expression
    if workload.op is not None:
        return expression.flops
    return sum(_flops(stage, expression) for stage in _whole_stages(expression))


def least_bytes(workload: Workload) -> int:
    """Bytes of all outputs and of the input elements that are read, each counted once."""
    expression, catalogue = workload.expression, workload.op is not None
    stages = expression.stages if catalogue else _whole_stages(expression)
    inputs = {tensor.name: tensor for tensor in expression.inputs}
    count = dict.fromkeys(inputs, 0)
    for stage in stages:
        for read in reads(stage.body) if catalogue else _certain_reads(stage.body):
            if read.tensor in inputs:
                elements = _elements_read(read, stage, inputs[read.tensor].shape, hidden=catalogue)
                count[read.tensor] = max(count[read.tensor], elements)
    read_bytes = sum(count[name] * DTYPE_BYTES[tensor.dtype] for name, tensor in inputs.items())
    return read_bytes + sum(expression.tensor(name).nbytes for name in expression.outputs)


def _whole_stages(expression: Expression) -> list[Stage]:
    """Stages of which every point is needed: outputs, and what such stages read whole."""
    whole, stages = set(expression.outputs), []
    for stage in reversed(expression.stages):
        if stage.name in whole:
            stages.append(stage)
            whole |= set(_read_whole(stage, expression))
    return stages


def _flops(stage: Stage, expression: Expression) -> int:
    """Operations at the points that differ from each other and read no padding.

    The points of an operation differ along the axes that occur linearly in an index of a
    read below it.
    """
    padded = [read for read in reads(stage.body) if _may_leave(read, stage, expression)]
    if len(padded) > 1 or any(_may_mask(node, stage.extents) for node in walk(stage.body)):
        return 0
    count, moving = _work(stage.body, stage.extents)
    if stage.reducer:
        count += prod(stage.extents[name] for name in moving)
    for read in padded:
        everywhere = prod(stage.extents[name] for index in read.indices for name in _axes(index))
        count = count * _points_inside(read, stage, expression) // everywhere
    return count


def _work(node: Scalar, extents: Mapping[str, int]) -> tuple[int, set[str]]:
    """Operations of a scalar whatever its choices choose, and the axes along which it differs."""
    match node:
        case Read():
            return 0, {
                name for read in reads(node) for index in read.indices for name in _axes(index)
            }
        case Select(then=then, other=other):
            return 0, _work(then, extents)[1] & _work(other, extents)[1]
    parts = [_work(child, extents) for child in children(node)]
    count, moving = sum(part[0] for part in parts), set[str]().union(*(part[1] for part in parts))
    if isinstance(node, Binary | Unary):
        count += prod(extents[name] for name in moving)
    return count, moving


def _may_mask(node: Scalar, extents: Mapping[str, int]) -> bool:
    """Whether it is a choice of what reads nothing, which may be a 0 that spares the rest."""
    return isinstance(node, Select) and not all(
        _work(branch, extents)[1] for branch in (node.then, node.other)
    )


def _axes(index: Scalar) -> set[str]:
    return set(affine(index).coefficients)


def _points_inside(read: Read, stage: Stage, expression: Expression) -> int:
    """Number of points of its own axes at which a read stays inside its tensor.

    0 where the indices are too complex to tell.
    """
    seen, count = set[str](), 1
    for index, extent in zip(read.indices, expression.tensor(read.tensor).shape, strict=True):
        positions, names = _positions(index, extent, stage), _axes(index)
        if positions is None or names & seen:
            return 0
        seen |= names
        count *= len(positions)
    return count


def _elements_read(read: Read, stage: Stage, shape: Sequence[int], *, hidden: bool) -> int:
    """Number of distinct elements of a tensor that one read touches.

    A dimension whose index is too complex counts whole if `hidden`, else as one
    element. One whose index is data counts the expected number of distinct values of
    uniformly drawn indices, as test inputs are drawn.
    """
    seen, count = set[str](), 1.0
    for index, extent in zip(read.indices, shape, strict=True):
        positions, names = (
            _positions(index, extent, stage),
            {node.name for node in walk(index) if isinstance(node, Var)},
        )
        if any(True for _ in reads(index)):
            drawn = prod(stage.extents[name] for name in names)
            count *= extent * -expm1(drawn * log1p(-1 / extent)) if extent > 1 else 1
        elif names & seen:
            continue
        elif positions is not None:
            count *= len(positions if isinstance(positions, range) else set(positions))
        elif hidden:
            count *= extent
        seen |= names
    return int(count)


def _positions(index: Scalar, extent: int, stage: Stage) -> Sequence[int] | None:
    """The positions in a dimension that an index takes, with repetitions.

    None where the index is not affine in iterators, or has too many points to enumerate.
    """
    form = linear(index)
    if form is None:
        return None
    extents = stage.extents
    steps = [(coefficient, extents[name]) for name, coefficient in form.coefficients.items()]
    if len(steps) == 1:
        ((coefficient, length),) = steps
        positions = range(form.constant, form.constant + coefficient * length, coefficient)[
            :: 1 if coefficient > 0 else -1
        ]
        return positions[bisect_left(positions, 0) : bisect_left(positions, extent)]
    if prod(length for _, length in steps) > MAX_ENUMERATED_POINTS:
        return None
    sums = map(
        sum,
        product(*(range(0, coefficient * length, coefficient) for coefficient, length in steps)),
    )
    visited = (form.constant + offset for offset in sums)
    return [position for position in visited if 0 <= position < extent]


def _certain_reads(node: Scalar) -> Iterator[Read]:
    """Reads that are done whatever the choices choose."""
    match node:
        case Read():
            yield from reads(node)
        case Select(cond=cond, then=then, other=other):
            yield from _certain_reads(cond)
            both = set(_certain_reads(other))
            yield from (read for read in _certain_reads(then) if read in both)
        case _:
            for child in children(node):
                yield from _certain_reads(child)


def _read_whole(stage: Stage, expression: Expression) -> Iterator[str]:
    """Tensors of which a stage reads every element, whatever the data."""
    extents = stage.extents
    for read in _certain_reads(stage.body):
        shape = expression.tensor(read.tensor).shape
        names = [index.name for index in read.indices if isinstance(index, Var)]
        alone = len(set(names)) == len(read.indices)
        if alone and all(
            extents[name] >= extent for name, extent in zip(names, shape, strict=True)
        ):
            yield read.tensor


def _may_leave(read: Read, stage: Stage, expression: Expression) -> bool:
    """Whether a padded read may fall outside its tensor."""
    if read.pad is None:
        return False
    dtypes = {name: tensor.dtype for name, tensor in expression.tensors.items()}
    return not is_inside(read, expression.tensor(read.tensor).shape, stage.extents, dtypes)
