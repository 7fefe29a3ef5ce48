"""Loops that LLVM is not to unroll: how far they are unrolled is the space's choice.

LLVM unrolls short bodies by itself, on some cores (those whose scheduling model states
a large buffer of decoded loops, as AMD's Zen does) long ones too. It does not count
registers: where a tile's accumulators nearly fill them, the second copy's operands find
none, and LLVM stores accumulators in every iteration. A loop that calls code it cannot
look into it leaves alone; such a call is put at the end of the body, and is no
instruction.
"""

from __future__ import annotations

import tvm
from tvm import tirx
from tvm_ffi import structural_map

from tuner.lowering.llvm_functions import NO_OPERATION

ROLL = "tuner_roll"  # the annotation


def keep_rolled(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with the call in every annotated loop; late, since other passes would
    not know the call."""
    functions = {
        name: structural_map(function, (tirx.For, _kept))
        for name, function in mod.functions.items()
    }
    return tvm.IRModule(functions, attrs=mod.attrs)


def _kept(loop: tirx.For) -> tirx.Stmt:
    if ROLL not in loop.annotations:
        return loop
    body = tirx.SeqStmt([loop.body, tirx.Evaluate(tirx.call_extern("void", NO_OPERATION.name))])
    return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body)
