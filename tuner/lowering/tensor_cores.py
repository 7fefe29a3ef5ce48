"""TVM's intrinsics for tensor cores by the names that sketches use; what TVM describes but does not name is named here."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from tvm.s_tir import TensorIntrin

from tuner.lowering.warpgroup import register

EDGE = 16  # of the squares that an instruction takes


@cache
def known(name: str) -> str:
    """The name, once TVM knows the intrinsic. The registry is TVM's, one a process."""
    if name.startswith("warpgroup"):
        register(name)
        return name
    # Loaded late: TVM parses hundreds of small programs for it, seconds that schedules without tensor cores must not pay.
    cuda = import_module("tvm.s_tir.tensor_intrin.cuda")
    load, sync = cuda.get_wmma_load_intrin, cuda.get_wmma_sync_intrin
    made = {
        "wmma_load_16x16x16_bf16_a_shared_dyn": (load, (*_SQUARE, "bfloat16", "shared.dyn", False, False)),
        "wmma_load_16x16x16_bf16_b_shared_dyn": (load, (*_SQUARE, "bfloat16", "shared.dyn", True, False)),
        "wmma_load_16x16x16_bf16_b_trans_shared_dyn": (load, (*_SQUARE, "bfloat16", "shared.dyn", True, True)),
        "wmma_sync_16x16x16_bf16bf16f32": (sync, (*_SQUARE, "bfloat16", "float32", False)),
        "wmma_sync_16x16x16_bf16bf16f32_trans": (sync, (*_SQUARE, "bfloat16", "float32", True)),
    }
    if name in made:
        make, arguments = made[name]
        TensorIntrin.register(name, *make(*arguments))
    return name


_SQUARE = (EDGE, EDGE, EDGE)
