"""Programs and scheduled modules for GPUs as the CPU runs them: no instructions of tensor
cores, and bound loops serial, one after another."""

from __future__ import annotations

from dataclasses import replace

import tvm
from tvm import tirx
from tvm_ffi import structural_map

from tuner.spaces.program.program import Pipeline, Program, StorageAlign, Tensorize


def serial(module: tvm.IRModule) -> tvm.IRModule:
    """The same module with nothing bound. Raises AssertionError where nothing was bound
    to begin with."""
    bound = 0

    def loose(loop: tirx.For) -> tirx.For:
        nonlocal bound
        if loop.kind != tirx.ForKind.THREAD_BINDING:
            return loop
        bound += 1
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

    functions = {
        name: structural_map(function, (tirx.For, loose))
        for name, function in module.functions.items()
    }
    assert bound >= 2, "nothing was bound"
    return tvm.IRModule(functions)


def without_instructions(program: Program) -> Program:
    """The program with the loops that its instructions stand for, on ordinary memory."""
    # Blocks that TVM puts around instructions are not among the program's.
    names = {block.name for block in program.blocks}
    return replace(
        program,
        buffers=tuple(
            replace(buffer, scope="local") if buffer.scope.startswith("wmma") else buffer
            for buffer in program.buffers
        ),
        steps=tuple(
            replace(step, asynchronous=False) if isinstance(step, Pipeline) else step
            for step in program.steps
            if not isinstance(step, Tensorize)
            and not (isinstance(step, StorageAlign) and step.block not in names)
        ),
    )
