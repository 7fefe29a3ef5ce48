"""What no way of computing an expression can do without, as far as its form tells: too
little at times, never too much.

An expression of the catalogue needs each of its operations, and all of its inputs but
what its strides pass over and the rows of a table that no index names. One that
somebody wrote may read a corner of a large tensor, compute what nobody reads, repeat
itself along an axis, or select away most of its work, and a kernel may leave all of
that out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import product
from math import expm1, log1p, prod

from tuner.workload.bounds import interval, linear
from tuner.workload.expression import (
    DTYPE_BYTES,
    Expression,
    Read,
    Scalar,
    Select,
    Stage,
    Var,
    arithmetic,
    reads,
    walk,
)
from tuner.workload.workload import Workload

MOST_POINTS = 1 << 16  # of one index that are looked at one by one


def least_flops(workload: Workload) -> int:
    """Arithmetic operations, a multiply-add as 2."""
    expression = workload.expression
    if workload.op is not None:
        return expression.flops
    return sum(_flops(stage, expression) for stage in _needed(expression))


def least_bytes(workload: Workload) -> int:
    """Bytes of all outputs and of the elements of inputs that are read, each counted once."""
    expression, catalogue = workload.expression, workload.op is not None
    stages = expression.stages if catalogue else _needed(expression)
    inputs = {tensor.name: tensor for tensor in expression.inputs}
    count = dict.fromkeys(inputs, 0)
    for stage in stages:
        for read in reads(stage.body) if catalogue else _certain(stage):
            if read.tensor in inputs:
                met = _met(read, stage, inputs[read.tensor].shape, hidden=catalogue)
                count[read.tensor] = max(count[read.tensor], met)
    read_bytes = sum(count[name] * DTYPE_BYTES[tensor.dtype] for name, tensor in inputs.items())
    return read_bytes + sum(expression.tensor(name).nbytes for name in expression.outputs)


def _needed(expression: Expression) -> list[Stage]:
    """The stages of which every point is needed: those of outputs, and those that such
    stages read whole."""
    whole, stages = set(expression.outputs), []
    for stage in reversed(expression.stages):
        if stage.name in whole:
            stages.append(stage)
            whole |= set(_read_whole(stage, expression))
    return stages


def _flops(stage: Stage, expression: Expression) -> int:
    """Operations at the points that differ: along axes that an index of a read moves
    with by itself, where nothing is padding."""
    padded = [read for read in reads(stage.body) if _may_leave(read, stage, expression)]
    if len(padded) > 1 or any(isinstance(node, Select) for node in walk(stage.body)):
        return 0
    extents = stage.extents
    moving = {name for read in reads(stage.body) for index in read.indices for name in _axes(index)}
    points = prod(extents[name] for name in moving)
    for read in padded:
        everywhere = prod(extents[name] for index in read.indices for name in _axes(index))
        points = points * _inside(read, stage, expression) // everywhere
    return points * (arithmetic(stage.body) + (1 if stage.reducer else 0))


def _axes(index: Scalar) -> set[str]:
    return {atom.name for atom in linear(index)[0] if isinstance(atom, Var)}


def _inside(read: Read, stage: Stage, expression: Expression) -> int:
    """At how many points of the axes in its indices a read stays inside; 0 where that
    is not plain to see."""
    seen, count = set[str](), 1
    for index, extent in zip(read.indices, expression.tensor(read.tensor).shape, strict=True):
        places, names = _places(index, extent, stage), _axes(index)
        if places is None or names & seen:
            return 0
        seen |= names
        count *= len(places)
    return count


def _met(read: Read, stage: Stage, shape: Sequence[int], *, hidden: bool) -> int:
    """Elements of a tensor that a read meets. Of a dimension whose index does not show
    it, all count if `hidden`, else one place; of one whose index is data, as many as
    evenly drawn ones name, as those of inputs are drawn."""
    seen, count = set[str](), 1.0
    for index, extent in zip(read.indices, shape, strict=True):
        places, names = (
            _places(index, extent, stage),
            {node.name for node in walk(index) if isinstance(node, Var)},
        )
        if any(True for _ in reads(index)):
            drawn = prod(stage.extents[name] for name in names)
            count *= extent * -expm1(drawn * log1p(-1 / extent)) if extent > 1 else 1
        elif names & seen:
            continue
        elif places is not None:
            count *= len(places if isinstance(places, range) else set(places))
        elif hidden:
            count *= extent
        seen |= names
    return int(count)


def _places(index: Scalar, extent: int, stage: Stage) -> Sequence[int] | None:
    """The places in a dimension where an index stands, as often as it does; None where
    it is not one of iterators alone, or those have too many points."""
    terms, constant = linear(index)
    steps = [
        (coefficient, stage.extents[atom.name])
        for atom, coefficient in terms.items()
        if isinstance(atom, Var)
    ]
    if len(steps) < len(terms):
        return None
    if len(steps) == 1:
        ((coefficient, length),) = steps
        places = range(constant, constant + coefficient * length, coefficient)[
            :: 1 if coefficient > 0 else -1
        ]
        return places[bisect_left(places, 0) : bisect_left(places, extent)]
    if prod(length for _, length in steps) > MOST_POINTS:
        return None
    sums = map(
        sum,
        product(*(range(0, coefficient * length, coefficient) for coefficient, length in steps)),
    )
    return [constant + moved for moved in sums if 0 <= constant + moved < extent]


def _certain(stage: Stage) -> Iterator[Read]:
    """What a stage reads at each of its points, whatever the data is."""
    choices = [
        branch
        for node in walk(stage.body)
        if isinstance(node, Select)
        for branch in (node.then, node.other)
    ]
    chosen = {read for branch in choices for read in reads(branch)}
    return (read for read in reads(stage.body) if read not in chosen)


def _read_whole(stage: Stage, expression: Expression) -> Iterator[str]:
    """Tensors each of whose elements a stage reads at some point, whatever the data is."""
    extents = stage.extents
    for read in _certain(stage):
        shape = expression.tensor(read.tensor).shape
        names = [index.name for index in read.indices if isinstance(index, Var)]
        alone = len(set(names)) == len(read.indices)
        if alone and all(
            extents[name] >= extent for name, extent in zip(names, shape, strict=True)
        ):
            yield read.tensor


def _may_leave(read: Read, stage: Stage, expression: Expression) -> bool:
    if read.pad is None:
        return False
    dtypes = {name: tensor.dtype for name, tensor in expression.tensors.items()}
    return any(
        low < 0 or high >= extent
        for (low, high), extent in zip(
            (interval(index, stage.extents, dtypes) for index in read.indices),
            expression.tensor(read.tensor).shape,
            strict=True,
        )
    )
