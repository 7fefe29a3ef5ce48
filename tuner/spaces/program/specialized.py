"""What is left of a program without the kernels of our own generator."""

from __future__ import annotations

from dataclasses import replace

from tuner.spaces.program.prepacking import about
from tuner.spaces.program.program import Program, Specialize
from tuner.workload.expression import Tensor, reads


def without_specialized(program: Program) -> Program:
    """The program of the other blocks.

    What they read of specialised blocks is an input, and what these read of them an
    output.
    """
    steps = [step for step in program.steps if isinstance(step, Specialize)]
    names = {name for step in steps for name in (step.product, step.store)}
    own = [block for block in program.blocks if block.name in names]
    others = [block for block in program.blocks if block.name not in names]
    written, read = ({block.buffer for block in blocks} for blocks in (own, others))
    needed, made = (
        {each.tensor for block in blocks for each in reads(block.body)} for blocks in (others, own)
    )
    every = {tensor.name: tensor for tensor in program.outputs} | {
        buffer.name: Tensor(name=buffer.name, shape=buffer.shape, dtype=buffer.dtype)
        for buffer in program.buffers
    }
    inputs = [every[name] for name in every if name in written & needed]
    outputs = [
        every[name]
        for name in every
        if name in read and (name in made or name in {out.name for out in program.outputs})
    ]
    moved = {tensor.name for tensor in (*inputs, *outputs)} | written
    return replace(
        program,
        inputs=(*program.inputs, *inputs),
        outputs=tuple(outputs),
        buffers=tuple(buffer for buffer in program.buffers if buffer.name not in moved),
        blocks=tuple(others),
        steps=tuple(step for step in program.steps if not about(step) & names),
    )
