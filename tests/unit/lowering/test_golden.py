"""Scheduled modules of fixed configs, kept as text: a change of what is generated shows
in review."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tuner.lowering.compiler import compile_stored, program_text
from tuner.lowering.schedule import schedule, stored
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Value
from tuner.spaces.default_schedule import default_program
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
