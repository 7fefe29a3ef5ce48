"""Scheduled modules of fixed configs, kept as text: a change of what is generated shows
in review."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.targets import GOLDEN_COVE
from tuner.lowering.compiler import compile_stored, program_text
from tuner.lowering.schedule import schedule, stored
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Value
from tuner.spaces.default_schedule import default_program
from tuner.target.detect import parse_target
from tuner.target.target import Target
from tuner.workload.spec import parse_spec

# A made-up machine, so that the text does not depend on the one at hand.
TARGET = Target(
    key="golden", kind="cpu", name="golden", tvm={"kind": "llvm", "mcpu": "x86-64-v4"}, isa=(),
    vector_bytes=64,
    vector_registers=32, cores=2, l1d_bytes=32768, l2_bytes=1048576, l3_bytes=33554432,
)  # fmt: skip
CASES: dict[str, tuple[str, dict[str, Value]]] = {
    "matmul_odd": ("matmul:M=61,N=67,K=64", {
        "sketch": "C:tile_j", "C.tile_j.register": (6, 32), "C.tile_j.block_j": 67,
        "C.tile_j.depth": 32,
        "C.tile_j.unroll": (0, 2), "C.tile_j.copy0_A": "pack", "C.tile_j.copy1_B": "pack_root",
    }),
    "matmul_transposed": ("matmul:M=32,N=48,K=64,transpose_b=true", {
        "sketch": "C:tile_j", "C.tile_j.register": (6, 32), "C.tile_j.depth": 64,
        "C.tile_j.copy1_B": "pack",
    }),
    "conv2d_padded": ("conv2d:N=1,H=9,W=11,CI=5,CO=32,KH=3,KW=3,pad=1,act=relu", {
        "sketch": "Y:tile_k", "Y.tile_k.register": (1, 1, 6, 32), "Y.tile_k.copy0_X": "pad",
        "Y.tile_k.copy1_W": "pack_root",
    }),
    "softmax_odd": ("softmax:M=5,N=53", {"sketch": "Y:rows", "Y.rows.register": (2, 32),
    "Y.rows.mathematics": "polynomial"}),
    "transpose_odd": ("transpose:M=37,N=41", {"sketch": "Y:turn_j_i", "Y.turn_j_i.register": (16,
    16)}),
}  # fmt: skip


# Families that depend on instructions or on an algorithm: all knobs at their defaults
# but for those given.
FAMILIES: dict[str, tuple[str, dict[str, Value]]] = {
    "amx_int8": ("matmul:M=32,N=32,K=64,dtype=int8", {"sketch": "C:amx_j"}),
    "amx_bfloat16": ("matmul:M=32,N=32,K=64,dtype=bfloat16", {"sketch": "C:amx_j"}),
    "amx_bf16x3": (
        "matmul:M=32,N=32,K=64,numerics=fast",
        {"sketch": "CAsplit:tile_p1+CBsplit:tile_p1+Csplit:amx_j"},
    ),
    "dp4_int8": ("matmul:M=8,N=32,K=64,dtype=int8", {"sketch": "C:fours_j"}),
    "dp2_bfloat16": ("matmul:M=8,N=32,K=64,dtype=bfloat16", {"sketch": "C:pairs_j"}),
    "lookup_uint4": ("qdense:M=2,N=32,K=64,weight=uint4", {"sketch": "Y:lookup_j"}),
    "halves_int4": (
        "qdense:M=2,N=32,K=64,activations=int8",
        {"sketch": "A:rows+Q:tile_k+Y:halves_j"},
    ),
    "depthwise_fours": (
        "depthwise_conv2d:N=1,H=6,W=8,C=32,KH=3,KW=3,pad=1,dtype=int8",
        {"sketch": "Y:fours_c"},
    ),
    "depthwise_floats": (
        "depthwise_conv2d:N=1,H=6,W=8,C=32,KH=3,KW=3,pad=1,dtype=int8",
        {"sketch": "Y:floats_c"},
    ),
    "float16_sums": (
        "matmul:M=4,N=32,K=64,dtype=float16,numerics=tensor",
        {"sketch": "C:float16_j"},
    ),
    "grouped_int8": ("qdense:M=2,N=32,K=64,weight=int8", {"sketch": "Y:grouped_j"}),
    "grouped_fours_int8": (
        "qdense:M=2,N=32,K=64,weight=int8,activations=int8",
        {"sketch": "A:rows+Q:tile_k+Y:fours_j"},
    ),
    "rfactor": ("matmul:M=4,N=8,K=65536", {"sketch": "Cprf:tile_j+Crf:tile_j"}),
    "winograd": (
        "conv2d:N=1,H=8,W=8,CI=16,CO=32,KH=3,KW=3,pad=1,numerics=fast",
        {"sketch": "Yuwin:tile_k+Yvwin:tile_c+Ymwin:tile_k+Ywin:tile_k"},
    ),
    "winograd_patches": (
        "conv1d:N=1,W=18,CI=16,CO=32,KW=3,pad=1,numerics=fast",
        {"sketch": "Yuwin4:patch_k+Yvwin4:patch_c+Ymwin4:tile_k+Ywin4:patch_k"},
    ),
    "polyphase": (
        "conv2d_transpose:N=1,H=6,W=6,CI=8,CO=32,KH=3,KW=3,stride=2",
        {"sketch": "Yph:tile_k+Y:tile_k"},
    ),
    "fully_unrolled": ("conv2d:N=1,H=3,W=3,CI=1,CO=1,KH=2,KW=2", {"sketch": "straight"}),
    "gather": ("embedding:V=100,D=64,N=16", {"sketch": "Y:tile_d"}),
}


def test_scheduled_module_of_small_matrices(golden: Callable[[str, str], None]) -> None:
    space = space_of(
        parse_spec("matmul:M=8,N=16,K=64,dtype=int8"), parse_target("cpu:neoverse-v2"), 2
    )
    program = space.program({"sketch": "C:mmla_j"})
    golden("cpu_mmla_int8.tvmscript", program_text(program, "kernel") + "\n")


@pytest.mark.parametrize("name", FAMILIES)
def test_scheduled_modules_of_each_family(name: str, golden: Callable[[str, str], None]) -> None:
    spec, config = FAMILIES[name]
    program = space_of(parse_spec(spec), GOLDEN_COVE, 2).program(config)
    golden(f"cpu_{name}.tvmscript", program_text(program, "kernel") + "\n")


@pytest.mark.parametrize("name", CASES)
def test_scheduled_modules(name: str, golden: Callable[[str, str], None]) -> None:
    spec, config = CASES[name]
    golden(
        f"{name}.tvmscript",
        program_text(space_of(parse_spec(spec), TARGET, 1).program(config), "kernel") + "\n",
    )


def test_default_schedule(golden: Callable[[str, str], None]) -> None:
    workload = parse_spec("dense:M=5,N=7,K=6,bias=true,act=relu")
    golden("default_dense.tvmscript", program_text(default_program(workload), "kernel") + "\n")


@pytest.mark.parametrize("name", CASES)
def test_a_stored_schedule_compiles_to_the_same_code(name: str) -> None:
    spec, config = CASES[name]
    program = space_of(parse_spec(spec), TARGET, 2).program(config)
    scheduled = schedule(program, "kernel")
    kept = stored(program, "kernel", scheduled)
    from_store = compile_stored(kept, TARGET)
    assert from_store == compile_stored(kept, TARGET)
    assert len(from_store) > 1000
