"""Squares and rectangles transposed in registers: every element in its place, and none
moved by itself."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import tirx
from tvm.runtime import tensor
from tvm_ffi import structural_map

from tests.support.targets import ZEN5, host_target
from tuner.lowering.compiler import compile_program
from tuner.lowering.passes.transposition import transpose_in_registers
from tuner.lowering.schedule import schedule
from tuner.spaces.by_target import space_of
from tuner.spaces.program.loops import LoopId
from tuner.spaces.program.marks import TransposeInRegisters
from tuner.spaces.program.program import Block, Program
from tuner.workload.dtypes import DType
from tuner.workload.expression import Axis, Read, Tensor, Var
from tuner.workload.spec import parse_spec


def copy_of(rows: int, lanes: int, dtype: DType, columns: int = 0) -> Program:
    """`Y[g, l, r] = X[g, r, l]` for two groups, `rows` by `columns` each, or by `lanes`."""
    columns = columns or lanes
    group, along, across = (
        Axis(name="g", extent=2),
        Axis(name="l", extent=columns),
        Axis(name="r", extent=rows),
    )
    body = Read("X", (Var("g"), Var("r"), Var("l")))
    block = Block(
        name="Y",
        axes=(group, along, across),
        buffer="Y",
        indices=(Var("g"), Var("l"), Var("r")),
        body=body,
    )
    return Program(
        inputs=(Tensor(name="X", shape=(2, rows, columns), dtype=dtype),),
        outputs=(Tensor(name="Y", shape=(2, columns, rows), dtype=dtype),),
        buffers=(),
        blocks=(block,),
        steps=(TransposeInRegisters(loop=LoopId("Y", "l"), vector_lanes=lanes),),
    )


@pytest.mark.parametrize(
    ("dtype", "lanes", "rows"),
    [("float32", lanes, rows) for lanes in (4, 8, 16) for rows in (1, 2, 3, 5, 6, 8, 14, 16)]
    + [
        ("float64", 2, 3),
        ("float64", 4, 6),
        ("float64", 8, 8),
        ("int32", 8, 7),
        ("int8", 16, 13),
        ("int8", 8, 8),
    ],
)
def test_every_element_is_in_its_place(dtype: DType, lanes: int, rows: int) -> None:
    given = np.arange(2 * rows * lanes).reshape(2, rows, lanes).astype(dtype)
    got = tensor(np.zeros((2, lanes, rows), dtype))
    compiled = compile_program(copy_of(rows, lanes, dtype), host_target(), "kernel")
    compiled.generated["kernel"](tensor(given), got)
    np.testing.assert_array_equal(got.numpy(), given.transpose(0, 2, 1))


@pytest.mark.parametrize(
    ("columns", "lanes"), [(16, 8), (9, 8), (61, 8), (13, 4), (31, 16), (8, 1)]
)  # 1: as long as the loop
def test_vectors_that_do_not_divide_the_columns_end_with_them(columns: int, lanes: int) -> None:
    given = np.arange(2 * 6 * columns).reshape(2, 6, columns).astype(np.float32)
    got = tensor(np.zeros((2, columns, 6), np.float32))
    compile_program(copy_of(6, lanes, "float32", columns), host_target(), "kernel").generated[
        "kernel"
    ](tensor(given), got)
    np.testing.assert_array_equal(got.numpy(), given.transpose(0, 2, 1))


@pytest.mark.parametrize(
    ("rows", "lanes", "shuffles"),
    [
        (4, 4, 8),  # two for each pair of rows in each round
        (8, 8, 24),
        (16, 16, 64),
        (4, 8, 8 + 8),  # two squares side by side in one go, and their halves taken apart
        (6, 8, (8 + 2) + (8 + 8)),
    ],
)
def test_a_pair_of_rows_takes_two_shuffles_a_round(rows: int, lanes: int, shuffles: int) -> None:
    rectangles = []

    def note(shuffle: tirx.Shuffle) -> tirx.Shuffle:
        rectangles.append(shuffle)
        return shuffle

    mod = transpose_in_registers(schedule(copy_of(rows, lanes, "float32"), "kernel").mod)
    structural_map(mod["kernel"], (tirx.Shuffle, note))
    assert len(rectangles) == shuffles


@pytest.mark.parametrize(
    ("spec", "marked"),
    [
        ("matmul:M=48,N=64,K=64", True),
        ("matmul:M=48,N=64,K=61", True),
        ("matmul:M=48,N=64,K=3", False),  # shorter than a vector worth loading
        ("matmul:M=48,N=64,K=64,transpose_a=true", False),  # rows lie side by side
        ("conv2d:N=1,H=8,W=8,CI=16,CO=32,KH=1,KW=1", True),
        ("conv2d:N=1,H=8,W=8,CI=16,CO=32,KH=3,KW=3,pad=1", False),  # a border is no vector's
    ],
)
def test_rows_of_a_register_tile_are_packed_in_rectangles(spec: str, marked: bool) -> None:
    space = space_of(parse_spec(spec), ZEN5, 1)
    points = space.space.sample(np.random.default_rng(3), 200)
    configs = [space.space.config(point) for point in points]
    packing = [
        config
        for config in configs
        if any("copy0" in name and value == "pack" for name, value in config.items())
    ]
    programs = [
        space.program(config)
        for config in packing
        if "tile_j" in str(config) or "tile_k" in str(config)
    ]
    transposes = {
        type(step) is TransposeInRegisters for program in programs for step in program.steps
    }
    assert (True in transposes) == marked
