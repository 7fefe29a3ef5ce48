"""Conversions of NaN to integers, where the processor does not give them what others give.

The polynomial of the exponential adds a converted number to the exponent, and relies on
what NaN becomes: 0 (Arm) or the least integer (x86) leave the NaN as it is. RISC-V gives
the greatest integer, which makes a number of it (The RISC-V Instruction Set Manual,
volume I, F extension, conversions).
"""

from __future__ import annotations

import tvm
from tvm import tirx

from tuner.lowering.passes.substitution import with_replaced


def convert_nans_to_zero(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with each conversion of a float32 to int32 giving 0 for NaN."""
    return with_replaced(mod, tirx.Cast, _of_numbers)


def _of_numbers(cast: tirx.Cast) -> tvm.ir.PrimExpr:
    if str(cast.ty) != "int32" or str(cast.value.ty) != "float32":
        return cast
    zero = tirx.const(0.0, "float32")
    return tirx.Select(tirx.isnan(cast.value), zero, cast.value).astype("int32")
