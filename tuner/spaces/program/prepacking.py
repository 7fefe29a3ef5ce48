"""Weight prepacking: what a program does with its constants alone, done once.

A copy of a constant input that stands at the root of a program (a sketch's `pack_root`
and `pad`), or a sum over one, depends on nothing that varies from call to call. Such
blocks become a program of their own, the prologue, which writes the packed buffers. The
rest takes these as inputs in the constant's place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tuner.spaces.program.marks import Mark
from tuner.spaces.program.program import (
    Bind,
    Block,
    ComputeAt,
    DecomposeReduction,
    Fuse,
    Pipeline,
    Program,
    Reorder,
    ReverseComputeAt,
    Specialize,
    SplitLoop,
    StageInRegisters,
    Step,
    StorageAlign,
    Tensorize,
)
from tuner.workload.expression import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A program divided by what depends on declared constants alone."""

    main: Program  # what runs in each call
    # constants in, packed buffers out; None where nothing depends on constants alone
    prologue: Program | None


def split(program: Program) -> Split:
    """The program in two. Loops keep their names; each step stays with the block it is about."""
    prepacked = _prepacked(program)
    if not prepacked:
        return Split(main=program, prologue=None)
    blocks = [block for block in program.blocks if block.name in prepacked]
    rest = [part for part in program.parts if part.name not in prepacked]
    written = {name for block in blocks for name in block.written}
    read_later = {read.tensor for block in rest for read in block.sources}
    packed = {
        buffer.name: Tensor(name=buffer.name, shape=buffer.shape, dtype=buffer.dtype)
        for buffer in program.buffers
        if buffer.name in written & read_later
    }
    origin = _origins(blocks)
    inputs: list[Tensor] = []
    for tensor in program.inputs:
        copies = [copy for name, copy in packed.items() if min(origin[name]) == tensor.name]
        if tensor.name in read_later or not copies:
            inputs.append(tensor)
        inputs += copies
    sources = {name for constants in origin.values() for name in constants}
    return Split(
        main=replace(
            program,
            inputs=tuple(inputs),
            buffers=tuple(buffer for buffer in program.buffers if buffer.name not in written),
            blocks=tuple(block for block in program.blocks if block.name not in prepacked),
            steps=tuple(step for step in program.steps if not about(step) & prepacked),
            constants=(),
        ),
        prologue=Program(
            inputs=tuple(tensor for tensor in program.inputs if tensor.name in sources),
            outputs=tuple(packed.values()),
            buffers=tuple(
                buffer
                for buffer in program.buffers
                if buffer.name in written and buffer.name not in packed
            ),
            blocks=tuple(blocks),
            steps=tuple(step for step in program.steps if about(step) & prepacked),
            views=program.views,
        ),
    )


def _prepacked(program: Program) -> frozenset[str]:
    """Names of the blocks that read constants alone, stand at the root, and have a
    buffer to themselves."""
    nested = {
        name
        for step in program.steps
        if isinstance(step, (ComputeAt, ReverseComputeAt))
        for name in about(step)
    }
    near = {buffer.name for buffer in program.buffers if buffer.scope != "global"}
    written = [name for part in program.parts for name in part.written]
    constant = set(program.constants)
    names: set[str] = set()
    for block in program.blocks:
        sources = {read.tensor for read in block.sources}
        own = (
            written.count(block.buffer) == 1
            and block.buffer not in near
            and all(block.buffer != out.name for out in program.outputs)
        )
        if sources and sources <= constant and block.name not in nested and own:
            constant.add(block.buffer)
            names.add(block.name)
    return frozenset(names)


def _origins(blocks: list[Block]) -> dict[str, frozenset[str]]:
    """For each buffer the blocks write, the constants it comes from."""
    origins: dict[str, frozenset[str]] = {}
    for block in blocks:
        origins[block.buffer] = frozenset().union(
            *(origins.get(read.tensor, {read.tensor}) for read in block.sources)
        )
    return origins


def about(step: Step) -> frozenset[str]:
    """The blocks a step names."""
    match step:
        case Reorder(loops=loops) | Fuse(loops=loops):
            return frozenset(loop.block for loop in loops)
        case ComputeAt(block=block, loop=loop) | ReverseComputeAt(block=block, loop=loop):
            return frozenset({block, loop.block})
        case (
            DecomposeReduction(block=block)
            | StorageAlign(block=block)
            | StageInRegisters(block=block)
        ):
            return frozenset({block})
        case (
            Mark(loop=loop)
            | Bind(loop=loop)
            | SplitLoop(loop=loop)
            | Tensorize(loop=loop)
            | Pipeline(loop=loop)
        ):
            return frozenset({loop.block})
        case Specialize(product=product, store=store):
            return frozenset({product, store})
