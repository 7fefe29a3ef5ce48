"""TVM's lowering up to buffers of one dimension, for passes that compute with addresses.

The build runs it again and finds nothing left of that to do.
"""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx

_STEPS = (
    s_tir.transform.CanonicalizeLoop,
    s_tir.transform.LowerInitBlock,
    s_tir.transform.PlanAndUpdateBufferAllocationLocation,
    s_tir.transform.ConvertBlocksToOpaque,
    s_tir.transform.CompactBufferAllocation,
    s_tir.transform.LowerMatchBuffer,
    s_tir.transform.StmtSimplify,
    s_tir.transform.LowerOpaqueBlock,
    tirx.transform.FlattenBuffer,
)


def flattened(mod: tvm.IRModule) -> tvm.IRModule:
    """The scheduled module with loops and stores alone: no blocks, and flat indices."""
    return tvm.ir.transform.Sequential([make() for make in _STEPS])(mod)
