"""What no way of computing an expression can do without, as far as its form tells: too little at times, never too much.

An expression of the catalogue reads its inputs whole and needs each of its operations; its own counts are kept. One that somebody
wrote may read a corner of a large tensor, compute what nobody reads, repeat itself along an axis, or select away most of its
work, and a kernel may leave all of that out.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

from tuner.workload.bounds import interval, linear
from tuner.workload.expression import Expression, Read, Scalar, Select, Stage, Tensor, Var, arithmetic, reads, walk
from tuner.workload.workload import Workload

MOST_POINTS = 1 << 16  # of one index that are looked at one by one


def least_flops(workload: Workload) -> int:
    """Arithmetic operations, a multiply-add as 2."""
    expression = workload.expression
    if workload.op is not None:
        return expression.flops
    return sum(_flops(stage, expression) for stage in _needed(expression)[0])


def least_bytes(workload: Workload) -> int:
    """Bytes of all outputs and of the inputs that are read whole, each counted once."""
    expression = workload.expression
    if workload.op is not None:
        return expression.nbytes
    whole = _needed(expression)[1]
    inputs = sum(tensor.nbytes for tensor in expression.inputs if tensor.name in whole)
    return inputs + sum(expression.tensor(name).nbytes for name in expression.outputs)


def _needed(expression: Expression) -> tuple[list[Stage], set[str]]:
    """The stages of which every point is needed, and the tensors that they, the outputs first, read whole."""
    whole, stages = set(expression.outputs), []
    for stage in reversed(expression.stages):
        if stage.name in whole:
            stages.append(stage)
            whole |= set(_read_whole(stage, expression))
    return stages, whole


def _flops(stage: Stage, expression: Expression) -> int:
    """Operations at the points that differ: along axes that an index of a read moves with by itself, where nothing is padding."""
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
    """At how many points of the axes in its indices a read stays inside; 0 where that is not plain to see."""
    extents, seen, count = stage.extents, set[str](), 1
    for index, extent in zip(read.indices, expression.tensor(read.tensor).shape, strict=True):
        terms, constant = linear(index)
        names = _axes(index)
        if len(names) < len(terms) or names & seen or prod(extents[name] for name in names) > MOST_POINTS:
            return 0
        seen |= names
        steps = [(coefficient, extents[atom.name]) for atom, coefficient in terms.items() if isinstance(atom, Var)]
        places = product(*(range(0, coefficient * length, coefficient) for coefficient, length in steps))
        count *= sum(0 <= constant + sum(place) < extent for place in places)
    return count


def _read_whole(stage: Stage, expression: Expression) -> Iterator[str]:
    """Tensors each of whose elements a stage reads at some point, whatever the data is."""
    extents = stage.extents
    choices = [branch for node in walk(stage.body) if isinstance(node, Select) for branch in (node.then, node.other)]
    chosen = {read for branch in choices for read in reads(branch)}
    for read in reads(stage.body):
        shape = expression.tensor(read.tensor).shape
        names = [index.name for index in read.indices if isinstance(index, Var)]
        alone = len(set(names)) == len(read.indices) and read not in chosen
        if alone and all(extents[name] >= extent for name, extent in zip(names, shape, strict=True)):
            yield read.tensor


def _may_leave(read: Read, stage: Stage, expression: Expression) -> bool:
    if read.pad is None:
        return False
    dtypes = {tensor.name: tensor.dtype for tensor in _tensors(expression)}
    return any(
        low < 0 or high >= extent
        for (low, high), extent in zip(
            (interval(index, stage.extents, dtypes) for index in read.indices),
            expression.tensor(read.tensor).shape,
            strict=True,
        )
    )


def _tensors(expression: Expression) -> Iterator[Tensor]:
    yield from expression.inputs
    for stage in expression.stages:
        yield stage.tensor
