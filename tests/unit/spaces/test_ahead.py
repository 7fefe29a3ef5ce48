"""What a tile nest fetches ahead: lines of the next block or packed part, a page of
what a map streams or a packed copy holds; nothing changes by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest

from tests.support.checked_kernels import check_programs
from tests.support.spaces import shared_space
from tests.support.targets import GOLDEN_COVE, ZEN5
from tuner.app.workloads import as_workload
from tuner.cost_model.features import featurizer
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Value
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.program.program import Block
from tuner.spaces.program.tiles import constant
from tuner.workload.affine import value_range
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import Axis, Binary, Scalar, Var, reads, substitute, walk
from tuner.workload.spec import parse_spec

# So little that the second cache holds nothing of what tests can compute; as many lanes
# as there are on the machine they run on.
SMALL = replace(ZEN5, l1d_bytes=512, l2_bytes=1024)
SIXTEEN = replace(SMALL, vector_bytes=64, vector_registers=32, isa=("avx2", "fma", "avx512f"))


def configs(space: TargetSpace[Any], count: int) -> Iterator[dict[str, Value]]:
    """Random ones that fetch ahead."""
    for point in space.space.sample(np.random.default_rng(3), count):
        config = space.space.config(point)
        yield config | {
            knob.name: knob.values[-1] for knob in space.space.knobs if knob.name.endswith(".ahead")
        }


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec",
    [
        "elementwise:M=37,N=61,act=gelu",
        "elementwise:M=8,N=512,act=exp,dtype=float64",
        "bias_act:M=31,N=200,act=tanh",
        "batch_norm:N=3,H=5,W=5,C=40",
        "matmul:M=5,N=70,K=96",
        "matmul:M=16,N=128,K=132",
        "batch_matmul:B=3,M=7,N=48,K=64",
        "matmul:M=31,N=45,K=70,transpose_a=true,transpose_b=true",
        "dense:M=13,N=90,K=96,bias=true,act=relu",
        "conv2d:N=1,H=5,W=5,CI=64,CO=48,KH=1,KW=1",
        "conv2d:N=1,H=7,W=9,CI=12,CO=40,KH=3,KW=3,pad=1,stride=2",
        "conv1d:N=2,W=19,CI=10,CO=37,KW=3",
        "dense:M=2,N=90,K=96",
        "matmul:M=2,N=70,K=96,dtype=int8",
        "qdense:M=2,N=70,K=96,group=32",
        "qdense:M=2,N=70,K=96,group=32,activations=int8",
        "qdense:M=2,N=70,K=96,group=16,weight=int8",
        "spmm:M=19,N=37,K=48,density=0.2",
        "embedding_bag:V=50,D=41,B=7,L=5,mode=weighted,index=int64",
        "embedding_bag:V=50,D=64,B=7,L=5,dtype=bfloat16",
        "slide_layer_gradient:B=5,D=48,C=31,L=7",
        "slide_layer:B=5,D=48,C=31,L=7,softmax=true",
        "sddmm:M=13,N=19,K=35,density=0.2",
    ],
)
def test_results_are_what_they_are_without(spec: str) -> None:
    workload = parse_spec(spec)
    space = space_of(workload, SMALL, threads=1)
    programs = [space.program(config) for config in configs(space, 12)]
    fetching = [program for program in programs if any(b.prefetches for b in program.blocks)]
    assert fetching
    check_programs(workload, fetching)


def number(index: Scalar, environment: Mapping[str, int]) -> int:
    values = {name: constant(value) for name, value in environment.items()}
    limits = value_range(substitute(index, values), {})
    assert limits.low == limits.high
    return limits.low


def turns(axes: list[Axis]) -> Iterator[dict[str, int]]:
    for values in product(*(range(axis.extent) for axis in axes)):
        yield {axis.name: value for axis, value in zip(axes, values, strict=True)}


def sums(block: Block) -> tuple[list[Axis], list[Axis]]:
    """The loops of a block of the reduction, and those outside it."""
    inside = [
        axis
        for axis in (*block.axes, *block.reduce_axes)
        if axis.name.endswith("_1") or axis in block.reduce_axes
    ]
    return inside, [axis for axis in block.axes if axis.name.endswith("_2")]


def test_a_sum_fetches_rows_that_indices_to_come_name() -> None:
    """The lines of a tile, of the row four places further, at most the last one."""
    space = shared_space("embedding_bag:V=500,D=64,B=9,L=5", SIXTEEN)
    (sketch,) = {name for knob in space.space.knobs if (name := knob.name).endswith(".ahead")}
    owner = sketch.removesuffix(".ahead")
    config: dict[str, Value] = {
        "sketch": owner.replace(".", ":", 1),
        sketch: 4,
        f"{owner}.register": (1, 64),
    }
    program = space.program(config)
    (block,) = [block for block in program.blocks if block.prefetches]
    turn = {axis.name: 0 for axis in (*block.axes, *block.reduce_axes)}
    (place,) = [name for name in turn if name.startswith("e")]
    columns = set()
    for line in block.prefetches:
        row, column = line.read.indices
        (index,) = {read.indices[0] for read in reads(row)}
        assert line.read.tensor == "W"
        assert [number(index, turn | {place: at_place}) for at_place in (0, 30, 44)] == [4, 34, 44]
        columns.add(number(column, turn))
    assert columns == {0, 16, 32, 48}


STEP = """
kernel step(P: i32[A + 1] splits E, R: i32[E] in 0:B, N: i32[A] in 0:C, X: f32[B, D], W: f32[C, D])
    -> (Y: f32[A, D]) {
  S[a, d] += X[R[e], d] for e in P[a]:P[a + 1]
  Y[a, d] = W[N[a], d] - S[a, d]
}"""


def test_an_epilogue_fetches_rows_that_indices_to_come_name() -> None:
    """Of the table that lies beyond the second cache, not of the one that lies in it."""
    extents = {"A": 9, "B": 2, "C": 500, "D": 64, "E": 30}
    workload = as_workload(STEP, shapes=extents, constants=(), numerics="strict")
    space = space_of(workload, SIXTEEN, threads=1)
    config: dict[str, Value] = {
        "sketch": "Y:ragged_d",
        "Y.ragged_d.ahead": 4,
        "Y.ragged_d.register": (1, 64),
    }
    program = space.program(config)
    (block,) = [block for block in program.blocks if block.prefetches]
    assert block.buffer == "Y"
    (place,) = [axis.name for axis in block.axes if axis.name.startswith("a") and axis.extent > 1]
    turn = {axis.name: 0 for axis in block.axes}
    columns = set()
    for line in block.prefetches:
        row, column = line.read.indices
        (index,) = {read.indices[0] for read in reads(row)}
        assert line.read.tensor == "W"
        assert [number(index, turn | {place: at}) for at in (0, 3, 8)] == [4, 7, 8]
        columns.add(number(column, turn))
    assert columns == {0, 16, 32, 48}
    check_programs(workload, [program])


def test_a_sum_along_rows_fetches_those_that_indices_to_come_name() -> None:
    """Each vector that a tile reads, of the next tile, at most of the last row."""
    space = shared_space("slide_layer:B=3,D=64,C=500,L=22", SIXTEEN)
    config: dict[str, Value] = {
        "sketch": "Y:lanes",
        "Y.lanes.register": (1, 4, 32),
        "Y.lanes.ahead": 1,
    }
    defaults = {
        knob.name: knob.values[0] for knob in space.space.knobs if knob.name.startswith("Y.lanes")
    }
    program = space.program(defaults | config)
    (block,) = [block for block in program.blocks if block.prefetches]
    (line,) = block.prefetches
    assert line.read.tensor == "W"
    row, column = line.read.indices
    (index,) = [read.indices for read in reads(row)]
    turn = {axis.name: 0 for axis in (*block.axes, *block.reduce_axes)}
    (tile,) = [axis for axis in block.axes if axis.name.startswith("l") and axis.extent == 6]
    places = [number(index[1], turn | {tile.name: at}) for at in range(tile.extent)]
    assert places == [4, 8, 12, 16, 20, 21]
    columns = {number(column, turn | each) for each in turns([*block.reduce_axes])}
    assert columns == {0, 32}


@pytest.mark.parametrize(
    ("extents", "register", "block_j", "depth"),
    [
        ((16, 128, 64), (8, 32), 128, 16),  # a line a turn
        ((16, 128, 64), (8, 32), 64, 16),  # of half the row
        ((16, 128, 64), (2, 64), 128, 16),  # fewer lines than turns
        ((4, 128, 64), (4, 64), 128, 16),  # four lines a turn
        ((9, 90, 64), (3, 48), 90, 16),  # tiles and lines that do not divide
    ],
)
def test_a_sum_fetches_each_line_of_the_next_block(
    extents: tuple[int, int, int], register: tuple[int, int], block_j: int, depth: int
) -> None:
    m, n, k = extents
    space = shared_space(f"matmul:M={m},N={n},K={k}", SIXTEEN)
    chosen: dict[str, Value] = {
        "register": register,
        "block_i": m if m > 4 else 0,
        "block_j": block_j,
        "depth": depth,
        "ahead": 1,
    }
    names = {knob.name for knob in space.space.knobs}
    config = {
        f"C.tile_j.{what}": value for what, value in chosen.items() if f"C.tile_j.{what}" in names
    }
    program = space.program({"sketch": "C:tile_j"} | config)
    block = next(block for block in program.blocks if block.prefetches)
    inside, outside = sums(block)
    for around in turns(outside):
        lines: Counter[tuple[int, int]] = Counter()
        for turn in turns(inside):
            for line in block.prefetches:
                assert line.read.tensor == "B"
                row, column = (number(index, around | turn) for index in line.read.indices)
                lines[row, column] += 1
        wanted_rows = range(
            min(around["k_2"] + 1, k // depth - 1) * depth,
            min(around["k_2"] + 2, k // depth) * depth,
        )
        assert {row for row, _ in lines} == set(wanted_rows)
        each_row = {column for _, column in lines}
        width = min(-(-block_j // register[1]) * register[1], n)
        assert len(each_row) == -(-width // 16) and max(each_row) - min(each_row) < width
        assert len(lines) == len(each_row) * depth
        assert max(lines.values()) <= -(-prod(axis.extent for axis in inside) // len(lines)) + 1


@pytest.mark.parametrize(
    ("transpose_b", "register", "block_i", "block_j", "depth", "order"),
    [
        pytest.param(False, (8, 32), 32, 64, 96, (0, 1), marks=pytest.mark.slow),
        (False, (8, 32), 32, 64, 32, (1, 0)),  # of a block of the reduction
        # a tile and lines that do not divide
        pytest.param(False, (5, 48), 40, 64, 96, (1, 0), marks=pytest.mark.slow),
        # rows along the reduction
        pytest.param(True, (8, 32), 32, 64, 96, (1, 0), marks=pytest.mark.slow),
        (True, (8, 32), 0, 0, 32, (0, 1)),  # a vector of tiles a part
    ],
)
def test_a_sum_fetches_each_line_of_the_next_part_that_it_packs(
    transpose_b: bool,
    register: tuple[int, int],
    block_i: int,
    block_j: int,
    depth: int,
    order: tuple[int, int],
) -> None:
    m, n, k = 40, 192, 96
    space = shared_space(
        f"matmul:M={m},N={n},K={k},transpose_b={str(transpose_b).lower()}", SIXTEEN
    )
    chosen: dict[str, Value] = {
        "register": register,
        "block_i": block_i,
        "block_j": block_j,
        "depth": depth,
        "outer_order": order,
        "copy1_B": "pack",
        "ahead": 1,
    }
    program = space.program(
        {"sketch": "C:tile_j"} | {f"C.tile_j.{what}": value for what, value in chosen.items()}
    )
    block = next(block for block in program.blocks if block.prefetches)
    pack = next(block for block in program.blocks if "pack1" in block.name)
    # The innermost loop that moves the copy: a turn of it copies what the turn before has fetched.
    loops = [f"{'ij'[position]}_2" for position in order] + ["k_2"]
    around = sorted(
        (axis for axis in block.axes if axis.name in loops), key=lambda axis: loops.index(axis.name)
    )
    level = next(axis for axis in reversed(around) if axis.name != "i_2" and axis.extent > 1)
    outside = around[: around.index(level) + 1]
    inside = [
        axis
        for axis in (*block.axes, *block.reduce_axes)
        if axis not in outside and axis.name[-2:] in ("_2", "_1")
    ]
    for here in turns([axis for axis in outside if axis.name != "i_2"]):
        here["i_2"] = 0
        coming = here | {level.name: min(here[level.name] + 1, level.extent - 1)}
        copied = {
            tuple(number(index, coming | turn) for index in read.indices)
            for turn in turns([axis for axis in pack.axes if axis.name not in coming])
            for read in reads(pack.body)
        }
        fetched = {
            tuple(number(index, here | turn) for index in line.read.indices)
            for turn in turns(inside)
            for line in block.prefetches
            if line.read.tensor == "B"
        }
        first = min(column for _, column in copied)
        assert {(row, first + (column - first) // 16) for row, column in copied} == {
            (row, first + (column - first) // 16) for row, column in fetched
        }


@pytest.mark.parametrize(
    ("spec", "sketch", "register", "copy"),
    [
        ("dense:M=2,N=128,K=64,const=W", "tile_j", (2, 64), "copy1_W"),
        ("qdense:M=1,N=128,K=64,group=32,const=W", "lookup_j", (1, 64), "copy1_W"),
        ("qdense:M=2,N=128,K=64,group=32,weight=int8,const=W", "grouped_j", (2, 64), "copy1_W"),
        ("qdense:M=2,N=96,K=64,group=32,weight=int8,const=W", "grouped_j", (2, 96), "copy1_W"),
        ("matmul:M=2,N=128,K=64,dtype=int8,const=B", "fours_j", (2, 64), "copy1_B"),
    ],
)
def test_a_sum_fetches_each_line_of_a_packed_copy_a_page_ahead(
    spec: str, sketch: str, register: tuple[int, int], copy: str
) -> None:
    space = shared_space(spec, replace(GOLDEN_COVE, l2_bytes=1024))
    (name,) = (name for name in map(str, space.space.knobs[0].values) if f":{sketch}" in name)
    owner = name.replace(":", ".")
    chosen: dict[str, Value] = {"register": register, copy: "pack_root", "ahead": 1}
    open_knobs = {knob.name for knob in space.space.knobs}
    program = space.program(
        {"sketch": name}
        | {f"{owner}.{what}": v for what, v in chosen.items() if f"{owner}.{what}" in open_knobs}
    )
    (block,) = (block for block in program.blocks if block.prefetches)
    (line,) = block.prefetches
    (packed,) = (tensor for tensor in program.buffers if tensor.name == line.read.tensor)
    element = DTYPE_BYTES[packed.dtype]
    conditions = [condition for condition in line.when if isinstance(condition, Binary)]
    assert len(conditions) == len(line.when)
    used = {node for index in (*line.read.indices, *line.when) for node in walk(index)}
    loops = [axis for axis in (*block.axes, *block.reduce_axes) if Var(axis.name) in used]
    fetched: Counter[int] = Counter()
    for turn in turns(loops):
        place = 0
        for index, extent in zip(line.read.indices, packed.shape, strict=True):
            place = place * extent + number(index, turn)
        if all(number(condition.lhs, turn) == 0 for condition in conditions):
            fetched[place * element // 64] += 1
    lines = prod(packed.shape) * element // 64
    assert set(fetched) == set(range(64, 64 + lines))


def test_a_map_fetches_a_page_ahead_what_it_reads_and_writes() -> None:
    space = shared_space("elementwise:M=64,N=1024,act=gelu", SIXTEEN)
    config: dict[str, Value] = {
        "sketch": "Y:tile_ij",
        "Y.tile_ij.register": (32,),
        "Y.tile_ij.ahead": 4096,
        "Y.tile_ij.mathematics": "libm",
    }
    (block,) = space.program(config).blocks
    origin = {axis.name: 0 for axis in block.axes}
    assert [line.read.tensor for line in block.prefetches] == ["X", "Y"]
    assert [number(line.read.indices[0], origin) for line in block.prefetches] == [1024, 1024]
    (wide,) = space.program(
        config | {"Y.tile_ij.mathematics": "polynomial"}
    ).blocks  # two vectors become one
    assert [number(line.read.indices[0], origin) for line in wide.prefetches] == [
        1024,
        1040,
        1024,
        1040,
    ]


@pytest.mark.parametrize(
    ("spec", "l2_bytes", "offered"),
    [
        ("elementwise:M=64,N=1024,act=gelu", 1 << 18, True),
        ("elementwise:M=64,N=1024,act=gelu", 1 << 20, False),  # it is all in the cache
        ("elementwise:M=64,N=1024,act=gelu,dtype=bfloat16", 1 << 10, False),
        ("transpose:M=128,N=256", 1 << 10, False),
        ("matmul:M=16,N=256,K=256", 1 << 17, True),
        ("matmul:M=65,N=256,K=256", 1 << 17, True),  # as it is packed
        ("matmul:M=257,N=257,K=256", 1 << 17, False),  # computing takes longer by far
        ("matmul:M=16,N=256,K=256,transpose_b=true", 1 << 10, True),
        ("matmul:M=16,N=256,K=32", 1 << 10, True),
        ("qdense:M=1,N=256,K=256,group=32", 1 << 14, True),
        ("qdense:M=1,N=256,K=256,group=32", 1 << 16, False),
        ("qdense:M=8,N=256,K=256,group=32", 1 << 15, True),
        ("qdense:M=9,N=256,K=256,group=32", 1 << 15, False),
        ("qdense:M=1,N=256,K=256,group=16,weight=int8", 1 << 14, True),
        ("conv2d:N=1,H=5,W=5,CI=64,CO=48,KH=3,KW=3", 1 << 10, True),  # its weights
        ("global_avg_pool2d:N=2,H=7,W=7,C=64", 1 << 10, False),  # nothing is read twice
    ],
)
def test_it_is_offered_where_it_may_pay(spec: str, l2_bytes: int, offered: bool) -> None:
    space = shared_space(spec, replace(SIXTEEN, l2_bytes=l2_bytes)).space
    assert any(knob.name.endswith(".ahead") for knob in space.knobs) == offered


def test_a_sum_in_one_block_has_nothing_to_fetch() -> None:
    space = shared_space("matmul:M=16,N=256,K=256", SIXTEEN)
    describe = featurizer(space)

    def described(depth: int, ahead: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        config: dict[str, Value] = {
            "sketch": "C:tile_j",
            "C.tile_j.depth": depth,
            "C.tile_j.ahead": ahead,
        }
        return describe(space.space.point(config)[None, :])

    assert np.array_equal(described(256, 0), described(256, 1))
    assert not np.array_equal(described(64, 0), described(64, 1))
