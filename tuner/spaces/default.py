"""The default schedule: the expression lowered with elementwise stages inlined and nothing else done."""

from __future__ import annotations

from tuner.spaces.access import unpadded
from tuner.spaces.program import Block, Buffer, Program
from tuner.spaces.stages import inlined, plainly_named
from tuner.workload.expression import Expression, Read, Stage, Var
from tuner.workload.workload import Workload


def default_program(workload: Workload) -> Program:
    """One block a stage, in order, loops as the expression has them."""
    expression = inlined(plainly_named(workload.expression))
    blocks: list[Block] = []
    buffers: list[Buffer] = []
    for stage in expression.stages:
        made, held = plain_blocks(stage, expression)
        blocks += made
        buffers += held
    return Program(
        inputs=expression.inputs,
        outputs=tuple(expression.tensor(name) for name in expression.outputs),
        buffers=tuple(buffers),
        blocks=tuple(blocks),
    )


def plain_blocks(stage: Stage, expression: Expression) -> tuple[list[Block], list[Buffer]]:
    """The stage as it stands: one block, or two where its accumulator has another dtype than what is stored."""
    shapes = {tensor.name: tensor.shape for tensor in (*expression.inputs, *(other.tensor for other in expression.stages))}
    body = unpadded(stage.body, shapes, stage.extents)
    indices = tuple(Var(axis.name) for axis in stage.axes)
    held = [] if stage.name in expression.outputs else [Buffer(name=stage.name, shape=stage.tensor.shape, dtype=stage.dtype)]
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
        return [block], held
    wide = f"{stage.name}_acc"
    reduction = Block(
        name=wide, axes=stage.axes, reduce_axes=stage.reduce_axes, buffer=wide, indices=indices, body=body, reducer=stage.reducer
    )
    rounding = Block(name=stage.name, axes=stage.axes, buffer=stage.name, indices=indices, body=Read(wide, indices))
    return [reduction, rounding], [*held, Buffer(name=wide, shape=stage.tensor.shape, dtype=stage.accumulator)]
