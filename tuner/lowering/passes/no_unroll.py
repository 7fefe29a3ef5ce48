"""Loops that LLVM must not unroll: how far a loop is unrolled is the space's choice.

LLVM unrolls short bodies by itself. On cores whose scheduling model states a large
buffer of decoded loops (AMD's Zen) it unrolls long ones too. It does not count
registers: where accumulators nearly fill them, it stores accumulators in every
iteration of the unrolled loop. LLVM does not unroll a loop that calls code it cannot
look into. This pass puts such a call, which is no instruction, at the end of the body.
"""

from __future__ import annotations

import tvm
from tvm import tirx

from tuner.lowering.llvm_functions import NO_OPERATION
from tuner.lowering.passes.substitution import with_replaced

NO_UNROLL = "tuner_roll"  # the annotation


def prevent_unrolling(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with the call in every annotated loop.

    Runs late, since other passes do not know the call.
    """
    return with_replaced(mod, tirx.For, _replaced)


def _replaced(loop: tirx.For) -> tirx.Stmt:
    if NO_UNROLL not in loop.annotations:
        return loop
    body = tirx.SeqStmt([loop.body, tirx.Evaluate(tirx.call_extern("void", NO_OPERATION.name))])
    return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body)
