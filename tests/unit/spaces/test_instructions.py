"""Names of tensor-core instructions, which stored schedules hold."""

from __future__ import annotations

import pytest

from tuner.spaces.program.instructions import (
    FragmentFill,
    FragmentLoad,
    FragmentMultiply,
    FragmentStore,
    TensorInstruction,
    WarpgroupFill,
    WarpgroupMultiply,
    WarpgroupStore,
    instructions_by_name,
)

STORED: dict[str, TensorInstruction] = {
    "square_load_a_f16": FragmentLoad(operand="a", dtype="float16"),
    "square_load_b_bf16_turned": FragmentLoad(operand="b", dtype="bfloat16", transposed=True),
    "square_fill_s32": FragmentFill(dtype="int32"),
    "square_multiply_s8_s32": FragmentMultiply(dtype="int8", accumulator="int32"),
    "square_multiply_f16_f32_turned": FragmentMultiply(
        dtype="float16", accumulator="float32", transposed=True
    ),
    "square_store_f32": FragmentStore(dtype="float32"),
    "warpgroup_fill": WarpgroupFill(),
    "warpgroup_multiply_2_4_bf16": WarpgroupMultiply(fragments=2, panels=4, dtype="bfloat16"),
    "warpgroup_multiply_1_2_f16_turned": WarpgroupMultiply(
        fragments=1, panels=2, dtype="float16", transposed=True
    ),
    "warpgroup_store": WarpgroupStore(),
}


@pytest.mark.parametrize(("name", "instruction"), STORED.items())
def test_names_of_stored_schedules_stay(name: str, instruction: TensorInstruction) -> None:
    assert instruction.name == name
    assert instructions_by_name()[name] == instruction


def test_every_instruction_has_a_name_of_its_own() -> None:
    by_name = instructions_by_name()
    assert len(set(by_name.values())) == len(by_name)
    assert all(instruction.name == name for name, instruction in by_name.items())
