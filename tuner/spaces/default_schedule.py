"""The default schedule: elementwise stages inlined, and nothing else done."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.spaces.program.program import Block, Buffer, Program
from tuner.spaces.rewrite.access import with_explicit_padding
from tuner.spaces.rewrite.stages import inlined, plainly_named
from tuner.workload.expression import Read, Stage, Var
from tuner.workload.workload import Workload


def default_program(workload: Workload) -> Program:
    """One block a stage, in order, loops as the expression has them."""
    expression = inlined(plainly_named(workload.expression))
    blocks: list[Block] = []
    buffers: list[Buffer] = []
    shapes = expression.shapes
    for stage in expression.stages:
        made, held = plain_blocks(stage, shapes)
        blocks += made
        if stage.name not in expression.outputs:
            buffers.append(Buffer(name=stage.name, shape=stage.tensor.shape, dtype=stage.dtype))
        buffers += held
    return Program(
        inputs=expression.inputs,
        outputs=tuple(expression.tensor(name) for name in expression.outputs),
        buffers=tuple(buffers),
        blocks=tuple(blocks),
    )


def plain_blocks(
    stage: Stage, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[list[Block], list[Buffer]]:
    """The stage as it stands: one block, or two where its accumulator, which is a
    buffer then, has another dtype than what is stored. `shapes`: of what it reads."""
    body = with_explicit_padding(stage.body, shapes, stage.extents)
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
