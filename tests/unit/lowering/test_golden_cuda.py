"""CUDA source of fixed configs, one for each family of sketches, kept as text.

A change of what is generated for GPUs shows in review.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from tuner.lowering.cuda.codegen import cuda_kernels
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Value
from tuner.target.cuda import cuda_target
from tuner.workload.spec import parse_spec

# Declared, so that the text does not depend on the GPU at hand.
TARGET = cuda_target("sm_90", lambda fingerprint: "golden")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A workload and the knobs of one of its kernels that are not at their defaults."""

    spec: str
    config: Mapping[str, Value] = field(default_factory=dict)


CASES: Mapping[str, Case] = {
    "tile_matmul_odd": Case(
        spec="matmul:M=61,N=67,K=64",
        config={
            "sketch": "C:tile",
            "C.tile.tile": (4, 2, 4, 16, 1, 1, 16),
            "C.tile.unroll": 4,
            "C.tile.pipeline": "registers",
            "C.tile.fetch0_A": "shared 4 turned padded",
            "C.tile.fetch1_B": "shared 1 padded",
        },
    ),
    "tile_matmul_warps": Case(
        spec="matmul:M=64,N=64,K=64",
        config={
            "sketch": "C:tile",
            "C.tile.tile": (8, 2, 4, 16, 1, 4, 16),
            "C.tile.warp": 4,
            "C.tile.pipeline": "async",
            "C.tile.fetch0_A": "shared 4",
            "C.tile.fetch1_B": "shared 4",
            "C.tile.order": (1, 0),
        },
    ),
    "tile_transpose_odd": Case(
        spec="transpose:M=37,N=41",
        config={
            "sketch": "Y:tile",
            "Y.tile.tile": (8, 2, 1, 8, 1, 1),
            "Y.tile.fetch0_X": "shared 1 padded",
        },
    ),
    "tile_gelu": Case(spec="elementwise:M=64,N=64,act=gelu"),
    "rows_softmax_registers": Case(
        spec="softmax:M=5,N=512", config={"sketch": "Y:rows", "Y.rows.shape": (2, 64, 4, 1)}
    ),
    "rows_softmax_shared": Case(
        spec="softmax:M=5,N=500", config={"sketch": "Y:rows", "Y.rows.shape": (1, 64, 4, 2)}
    ),
    "rows_layer_norm_preloaded": Case(
        spec="layer_norm:M=4,N=256", config={"sketch": "Y:rows", "Y.rows.shape": (1, 64, 4, 3)}
    ),
    "mma_matmul": Case(
        spec="matmul:M=64,N=64,K=64,dtype=float16",
        config={
            "sketch": "C:mma",
            "C.mma.tile": (2, 1, 2, 2, 32),
            "C.mma.rows": "padded",
            "C.mma.pipeline": "async 3",
            "C.mma.order": "columns first",
        },
    ),
    "mma_conv2d": Case(
        spec="conv2d:N=1,H=16,W=16,CI=16,CO=32,KH=3,KW=3,pad=1,act=relu,dtype=bfloat16",
        config={
            "sketch": "Y:mma",
            "Y.mma.tile": (1, 1, 2, 1, 16, 1),
            "Y.mma.pipeline": "registers",
        },
    ),
    "warpgroup_matmul": Case(
        spec="matmul:M=128,N=128,K=128,dtype=float16",
        config={"sketch": "C:warpgroup", "C.warpgroup.tile": (1, 1, 1, 2, 2)},
    ),
    "warpgroup_matmul_transposed": Case(
        spec="matmul:M=64,N=64,K=192,dtype=bfloat16,transpose_b=true",
        config={"sketch": "C:warpgroup"},
    ),
    "persistent_dense": Case(
        spec="dense:M=192,N=128,K=136,bias=true,act=relu,dtype=float16",
        config={"sketch": "Y:persistent", "Y.persistent.tile": (2, 1, 1, 1, 3)},
    ),
    "winograd": Case(
        spec="conv2d:N=1,H=8,W=8,CI=16,CO=32,KH=3,KW=3,pad=1,numerics=fast",
        config={
            "sketch": "Yuwin:square+Yvwin:square+Ymwin:tile+Ywin:square",
            "Ywin.square.tile": (2, 4, 8, 4),
        },
    ),
    "bf16x3_mma": Case(
        spec="matmul:M=64,N=64,K=64,numerics=fast",
        config={
            "sketch": "CAsplit:square+CBsplit:square+Csplit:mma",
            "Csplit.mma.tile": (1, 1, 2, 1, 16, 1),
        },
    ),
    "bf16x3_warpgroup": Case(
        spec="matmul:M=64,N=64,K=64,numerics=fast",
        config={"sketch": "CAsplit:square+CBsplit:square+Csplit:warpgroup"},
    ),
    "rfactor_matmul": Case(
        spec="matmul:M=4,N=8,K=65536,numerics=fast",
        config={"sketch": "Cprf:tile+Crf:tile", "Cprf.tile.unroll": 4},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_cuda_source(name: str, golden: Callable[[str, str], None]) -> None:
    case = CASES[name]
    program = space_of(parse_spec(case.spec), TARGET, 1).program(case.config)
    golden(f"cuda_{name}.cu", cuda_kernels(program, TARGET, "kernel").text.rstrip("\n") + "\n")
