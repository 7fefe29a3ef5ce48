"""Scheduled modules for GPUs as the CPU runs them: bound loops serial, one after another."""

from __future__ import annotations

import tvm
from tvm import tirx
from tvm_ffi import structural_map


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
