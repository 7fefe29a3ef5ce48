"""Inputs in whose place a program's output may be written."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tuner.spaces.program.program import Block, Program
from tuner.workload.expression import Read, Scalar, Tensor, reads


def overwritable(program: Program) -> tuple[int, ...]:
    """The positions of inputs that may have the memory of the only output.

    Each element of such an input is read where the element of the output at its place is
    computed, and nowhere else, and each element of the output is computed once. So it is
    read before it is overwritten, in whatever order and by whatever thread. Overlapping
    tiles compute some elements twice, the second time from what the first has written.
    Trees of loops are not looked into.
    """
    if len(program.outputs) != 1 or program.trees:
        return ()
    (output,) = program.outputs
    writing = [block for block in program.blocks if block.buffer == output.name]
    points = sum(prod(axis.extent for axis in block.axes) for block in writing)
    accumulated = any(block.reduce_axes or block.reducer for block in writing)
    if points != prod(output.shape) or accumulated:
        return ()
    return tuple(
        position
        for position, tensor in enumerate(program.inputs)
        if tensor.name not in program.constants
        and tensor.dtype == output.dtype
        and program.addressed(tensor) == program.addressed(output)
        and all(_read_in_place(block, tensor, output) for block in program.blocks)
    )


def _read_in_place(block: Block, tensor: Tensor, output: Tensor) -> bool:
    """Whether all that the block reads of the tensor is at the place that it writes."""
    places = [read.indices for read in _reads(block) if read.tensor == tensor.name]
    return not places or (
        block.buffer == output.name and all(place == block.indices for place in places)
    )


def _reads(block: Block) -> Iterator[Read]:
    """What the block reads, conditions and indices included; prefetches change nothing."""
    parts: list[Scalar] = [block.body, *block.when, *block.indices]
    if block.otherwise is not None:
        parts.append(block.otherwise)
    for part in parts:
        yield from reads(part)
