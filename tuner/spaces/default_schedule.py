"""The default schedule: elementwise stages inlined, and nothing else done.

Ragged ranges and scattered terms are conditions here, whose loops
`tuner.lowering.passes.ragged_loops` cuts.
"""

from __future__ import annotations

from collections.abc import Mapping

from tuner.spaces.program.loops import LoopId, loops_of
from tuner.spaces.program.program import (
    Block,
    Buffer,
    DecomposeReduction,
    Program,
    Reorder,
    Step,
)
from tuner.spaces.rewrite.access import with_explicit_padding
from tuner.spaces.rewrite.stages import inlined, plainly_named
from tuner.workload.expression import (
    RaggedRange,
    Read,
    Scalar,
    Scattering,
    Stage,
    Var,
    rows_from_data,
)
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
        steps += _steps(made[0].name, stage)
    return Program(
        inputs=expression.inputs,
        outputs=tuple(expression.tensor(name) for name in expression.outputs),
        buffers=tuple(buffers),
        blocks=tuple(blocks),
        steps=tuple(steps),
    )


def _steps(block: str, stage: Stage) -> list[Step]:
    """What the loops of rows that data choose need, so that they can be cut."""
    match rows_from_data(stage):
        case RaggedRange(axis=places):
            # The first place of a row is not the first of all.
            return [DecomposeReduction(block=block, loop=LoopId(block, places))]
        case Scattering() as scattered:
            around = [axis for axis in stage.axes if axis.name in scattered.along]
            row = [axis for axis in stage.axes if axis.name == scattered.row]
            within = [axis for axis in stage.axes if axis not in (*around, *row)]
            loops = [*stage.reduce_axes, *around, *row, *within]
            first = LoopId.of(block, stage.reduce_axes[0])
            return [
                Reorder(loops=loops_of(block, loops)),
                DecomposeReduction(block=block, loop=first),
            ]
    return []


def plain_blocks(
    stage: Stage, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[list[Block], list[Buffer]]:
    """The stage as it stands: one block, or two where its accumulator, which is a
    buffer then, has another dtype than what is stored. `shapes`: of what it reads."""
    match rows := rows_from_data(stage):
        case RaggedRange(conditions=conditions):
            when: tuple[Scalar, ...] = conditions
        case Scattering(condition=condition):
            when = (condition,)
        case _:
            when = ()
    terms = stage.body if rows is None else rows.body
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
