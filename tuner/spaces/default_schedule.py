"""The default schedule: elementwise stages inlined, and nothing else done.

Ragged ranges are conditions here; `tuner.lowering.passes.ragged_loops` cuts the loops.
"""

from __future__ import annotations

from collections.abc import Mapping

from tuner.spaces.program.loops import LoopId
from tuner.spaces.program.program import Block, Buffer, DecomposeReduction, Program, Step
from tuner.spaces.rewrite.access import with_explicit_padding
from tuner.spaces.rewrite.stages import inlined, plainly_named
from tuner.workload.expression import Read, Stage, Var, ragged_range
from tuner.workload.workload import Workload


def default_program(workload: Workload) -> Program:
    """One block a stage, in order, loops as the expression has them."""
    expression = inlined(plainly_named(workload.expression))
    blocks: list[Block] = []
    buffers: list[Buffer] = []
    steps: list[Step] = []
    shapes = expression.shapes
    for stage in expression.stages:
        made, held = plain_blocks(stage, shapes)
        blocks += made
        if stage.name not in expression.outputs:
            buffers.append(Buffer(name=stage.name, shape=stage.tensor.shape, dtype=stage.dtype))
        buffers += held
        if (ragged := ragged_range(stage)) is not None:
            # The first place of a row is not the first of all.
            loop = LoopId(made[0].name, ragged.axis)
            steps.append(DecomposeReduction(block=made[0].name, loop=loop))
    return Program(
        inputs=expression.inputs,
        outputs=tuple(expression.tensor(name) for name in expression.outputs),
        buffers=tuple(buffers),
        blocks=tuple(blocks),
        steps=tuple(steps),
    )


def plain_blocks(
    stage: Stage, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[list[Block], list[Buffer]]:
    """The stage as it stands: one block, or two where its accumulator, which is a
    buffer then, has another dtype than what is stored. `shapes`: of what it reads."""
    ragged = ragged_range(stage)
    when = () if ragged is None else ragged.conditions
    terms = stage.body if ragged is None else ragged.body
    body = with_explicit_padding(terms, shapes, stage.extents)
    indices = tuple(Var(axis.name) for axis in stage.axes)
    if stage.reducer is None or stage.accumulator == stage.dtype:
        block = Block(
            name=stage.name,
            axes=stage.axes,
            reduce_axes=stage.reduce_axes,
            buffer=stage.name,
            indices=indices,
            body=body,
            reducer=stage.reducer,
            when=when,
        )
        return [block], []
    wide = f"{stage.name}_acc"
    reduction = Block(
        name=wide,
        axes=stage.axes,
        reduce_axes=stage.reduce_axes,
        buffer=wide,
        indices=indices,
        body=body,
        reducer=stage.reducer,
        when=when,
    )
    rounding = Block(
        name=stage.name,
        axes=stage.axes,
        buffer=stage.name,
        indices=indices,
        body=Read(wide, indices),
    )
    return [reduction, rounding], [
        Buffer(name=wide, shape=stage.tensor.shape, dtype=stage.accumulator)
    ]
