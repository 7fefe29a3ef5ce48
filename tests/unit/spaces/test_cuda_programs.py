"""Programs for GPUs, interpreted block by block without TVM, compute what the reference
computes; each config fits a block."""

from __future__ import annotations

import zlib
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tests.support.program_interpreter import function_of, run
from tests.support.spaces import shared_space
from tuner.errors import IllegalSchedule
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Value
from tuner.spaces.cuda.axes import DepthAxis, GridAxis, PatchAxis
from tuner.spaces.cuda.limits import Footprint
from tuner.spaces.cuda.shared_copies import box_bytes
from tuner.spaces.cuda.tile_knobs import CudaTileSketch
from tuner.spaces.program.loops import LoopId
from tuner.spaces.program.program import Bind, ComputeAt, Pipeline, Program, StorageAlign
from tuner.spaces.rewrite.patches import patch_lengths
from tuner.target.cuda import STATIC_SHARED_BYTES, cuda_target
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import Axis
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import evaluate
from tuner.workload.spec import parse_spec, workload_from_notation
from tuner.workload.workload import Workload

TARGET = cuda_target("sm_90", lambda fingerprint: "declared")
SPECS = (
    "matmul:M=5,N=7,K=6", "matmul:M=3,N=4,K=67", "matmul:M=16,N=8,K=8",
    "matmul:M=4,N=9,K=8,transpose_b=true",
    "batch_matmul:B=2,M=3,N=4,K=5", "dense:M=2,N=5,K=9,bias=true,act=gelu",
    "conv2d:N=1,H=5,W=4,CI=2,CO=5,KH=3,KW=3,pad=1,act=relu",
    "conv2d:N=1,H=7,W=6,CI=2,CO=4,KH=3,KW=3,stride=2",
    "max_pool2d:N=1,H=5,W=5,C=5,KH=3,KW=3,stride=2,pad=1", "softmax:M=3,N=7", "softmax:M=2,N=40",
    "layer_norm:M=3,N=10",
    "layer_norm:M=5,N=48", "reduce_sum:M=5,N=13,axis=1", "reduce_max:M=5,N=13,axis=0",
    "transpose:M=5,N=9",
    "transpose:M=8,N=16", "attention:B=1,H=1,S=5,D=4",
)  # fmt: skip


def check(workload: Workload, configs: int) -> None:
    inputs = make_inputs(workload.expression, seed=5, kind="normal")
    want = evaluate(workload.expression, inputs)
    ordered = {tensor.name: inputs[tensor.name] for tensor in workload.expression.inputs}
    space = space_of(workload, TARGET, 1)
    rng = np.random.default_rng(zlib.crc32(workload.key.encode()))
    for point in space.space.sample(rng, configs):
        config = space.space.config(point)
        for name, got in zip(
            workload.expression.outputs, run(space.program(config), ordered), strict=True
        ):
            np.testing.assert_allclose(got, want[name], rtol=1e-9, atol=1e-12, err_msg=str(config))


@pytest.mark.parametrize("spec", SPECS)
def test_sampled_programs_compute_the_expression(spec: str) -> None:
    check(parse_spec(spec), configs=6)


def test_a_sum_over_everything() -> None:
    text = """kernel t(X: f32[M, N]) -> (Y: f32[1]) {
      S[u] += X[i, j] for u in 0:1
      Y[u] = S[u] * 2
    }"""
    check(workload_from_notation(text, {"M": 3, "N": 21}), configs=4)


def test_two_sums_of_a_row_that_one_stage_reads() -> None:
    text = """kernel s(X: f32[M, N], Z: f32[M, N]) -> (Y: f32[M, N]) {
      S[i] += X[i, j]
      T[i] += X[i, j] * Z[i, j]
      Y[i, j] = X[i, j] - S[i] - Z[i, j] * T[i]
    }"""
    check(workload_from_notation(text, {"M": 3, "N": 10}), configs=4)


def test_a_read_that_runs_backwards() -> None:
    text = """kernel r(A: f32[M, K], B: f32[K, N]) -> (C: f32[M, N]) {
      C[i, j] += A[i, K - 1 - k] * B[k, j]
    }"""
    check(workload_from_notation(text, {"M": 6, "N": 5, "K": 11}), configs=8)


@pytest.mark.parametrize("spec", ["matmul:M=61,N=67,K=71",
"conv2d:N=2,H=14,W=14,CI=16,CO=24,KH=3,KW=3,pad=1",
                                  "softmax:M=50,N=1000", "layer_norm:M=64,N=768",
                                  "transpose:M=300,N=512",
                                  "matmul:M=128,N=256,K=512,dtype=float16"])  # fmt: skip
def test_random_configs_fit_a_block(spec: str) -> None:
    space = shared_space(spec, TARGET)
    rng = np.random.default_rng(0)
    refused = 0
    for point in space.space.sample(rng, 100):
        try:
            program = space.program(space.space.config(point))
        except IllegalSchedule:
            refused += 1
            continue
        levels = {
            LoopId.of(b.name, axis): axis.extent
            for b in program.blocks
            for axis in (*b.axes, *b.reduce_axes)
        }
        bound = [step for step in program.steps if isinstance(step, Bind) and step.loop in levels]
        threads = {step.axis: levels[step.loop] for step in bound if step.axis != "blockIdx.x"}
        assert np.prod(list(threads.values())) <= 1024
        assert shared_bytes(program) <= STATIC_SHARED_BYTES
    assert refused <= 2


def shared_bytes(program: Program) -> int:
    """What the boxes of a one-group program take, computed from their loops and stretches alone."""
    total = 0
    aligned = {step.block: step for step in program.steps if isinstance(step, StorageAlign)}
    overlapped = {
        step.loop
        for step in program.steps
        if isinstance(step, Pipeline) and not step.staged_in_registers
    }
    twice = {
        step.block
        for step in program.steps
        if isinstance(step, ComputeAt) and step.loop in overlapped
    }
    for buffer in program.buffers:
        if buffer.scope != "shared":
            continue
        block = next(candidate for candidate in program.blocks if candidate.buffer == buffer.name)
        outer = sum(axis.name.endswith("_2") for axis in block.axes)
        shape = list(buffer.shape[outer:])
        if buffer.name.endswith("_square"):
            shape[2:4] = [1, 1]  # a warp's squares follow one another in the same place
        if buffer.name in aligned:
            step = aligned[buffer.name]
            shape[-1] += (step.offset - shape[-1]) % step.factor
        total += int(np.prod(shape)) * DTYPE_BYTES[buffer.dtype] * (2 if block.name in twice else 1)
    return total


def test_what_does_not_fit_says_why() -> None:
    small = Footprint(threads=(32, 4), registers=64, shared_bytes=1024)
    assert small.fault is None
    assert "1056 threads" in str(Footprint(threads=(33, 32), registers=16, shared_bytes=0).fault)
    assert "along z" in str(Footprint(threads=(1, 1, 65), registers=16, shared_bytes=0).fault)
    assert "256 registers" in str(Footprint(threads=(32,), registers=256, shared_bytes=0).fault)
    assert "65536" in str(Footprint(threads=(1024,), registers=65, shared_bytes=0).fault)
    with pytest.raises(IllegalSchedule, match="shared memory"):
        Footprint(threads=(32,), registers=16, shared_bytes=STATIC_SHARED_BYTES + 1).check()


def tile_sketch(spec: str, architecture: int = 90) -> CudaTileSketch:
    target = replace(TARGET, tvm={**TARGET.tvm, "arch": f"sm_{architecture}"})
    sketch, *_ = next(iter(shared_space(spec, target).sketches.values()))
    assert isinstance(sketch, CudaTileSketch)
    return sketch


def values(sketch: CudaTileSketch, what: str) -> tuple[Value, ...]:
    return next((knob.values for knob in sketch.knobs if knob.name.endswith(f".tile.{what}")), ())


def test_copies_overlap_where_there_are_some_and_without_registers_where_the_architecture_can() -> (
    None
):
    assert values(tile_sketch("matmul:M=64,N=64,K=64"), "pipeline") == (
        "none",
        "registers",
        "async",
    )
    assert values(tile_sketch("matmul:M=64,N=64,K=64", 75), "pipeline") == ("none", "registers")
    assert values(tile_sketch("transpose:M=64,N=64"), "pipeline") == ()
    assert values(tile_sketch("reduce_max:M=64,N=64,axis=0"), "pipeline") == ()


@pytest.mark.parametrize(
    ("spec", "rows"),
    [
        ("matmul:M=64,N=64,K=64", (0, 4, 8)),
        ("matmul:M=6,N=64,K=64", ()),  # nowhere 4 rows of threads
        ("conv2d:N=1,H=8,W=16,CI=8,CO=32,KH=3,KW=3", (0, 4, 8)),
        ("reduce_sum:M=64,N=64,axis=0", ()),  # nothing shared
        ("transpose:M=64,N=64", ()),
    ],
)
def test_warps_cover_rows_of_threads_where_tiles_have_so_many_and_operands_are_shared(
    spec: str, rows: tuple[int, ...]
) -> None:
    assert values(tile_sketch(spec), "warp") == rows


def test_a_warp_covers_only_what_fills_it() -> None:
    """What a tile cannot have is as if it were not asked for."""
    sketch = tile_sketch("matmul:M=64,N=64,K=64")
    config = {"sketch": "C:tile"} | {knob.name: knob.values[0] for knob in sketch.knobs}
    square, wide, narrow = (8, 2, 4, 16, 1, 4, 8), (2, 4, 1, 32, 1, 1, 8), (32, 1, 1, 4, 2, 4, 8)
    for tile, rows, got in [
        (square, 0, 0),
        (square, 4, 4),
        (square, 8, 8),
        (wide, 4, 0),
        (narrow, 4, 0),
        (narrow, 8, 8),
    ]:
        chosen = {**config, "C.tile.tile": tile, "C.tile.warp": rows}
        assert sketch.plan(chosen).warp_rows == got, (tile, rows)


@pytest.mark.parametrize(
    "spec", ["matmul:M=128,N=128,K=64", "conv2d:N=2,H=14,W=14,CI=16,CO=24,KH=3,KW=3,pad=1"]
)
def test_what_is_counted_for_boxes_is_what_the_largest_of_them_take(spec: str) -> None:
    """For each tile, over all ways to lay out its boxes in two copies: never more than
    was counted, and at least half of it."""
    space = shared_space(spec, TARGET)
    name, knobs = next(
        (combination.name, combination.knobs) for combination in space.space.combinations
    )
    ways = {knob.name.rsplit(".", 1)[1]: knob for knob in knobs}
    first, second = (knob for what, knob in ways.items() if what.startswith("fetch"))
    sketch, rng = tile_sketch(spec), np.random.default_rng(0)
    for place in rng.choice(len(ways["tile"].values), 12, replace=False):
        config = (
            {"sketch": name}
            | {knob.name: knob.values[0] for knob in knobs}
            | {ways["pipeline"].name: "async"}
        )
        tile = config[ways["tile"].name] = ways["tile"].values[place]
        used = [shared_bytes(space.program({**config, first.name: mode, second.name: second_mode}))
                 for mode in first.values[1:] for second_mode in second.values[1:]]  # fmt: skip
        counted = sketch.footprint(sketch.block.of(config)).shared_bytes
        assert max(used) <= counted <= 2 * max(used), (tile, max(used), counted)


def test_rows_are_stretched_by_what_is_read_of_them_at_once() -> None:
    """128 rows of 16 float32, or 16 of 128: by 1, 2 or 4 elements, the shorter rows to 20."""
    assert box_bytes((128, 16), 4, 1) == 128 * 20 * 4
    assert box_bytes((64,), 4, 4) == 64 * 4, "one row is never stretched"
    assert box_bytes((128, 128), 4, 4) == 128 * 132 * 4
    assert box_bytes((128, 128), 4, 8) == 128 * 136 * 4


def test_the_usual_tile_fits_with_two_boxes_of_each_operand() -> None:
    assert (16, 2, 4, 16, 2, 4, 16) in tile_sketch("matmul:M=2048,N=2048,K=2048").block.stored


@pytest.mark.parametrize(
    ("spec", "widths"),
    [
        ("matmul:M=64,N=64,K=64", {1, 4}),
        ("matmul:M=64,N=64,K=64,transpose_a=true", {1, 4}),
        ("matmul:M=64,N=64,K=64,dtype=float64", {1, 2}),
        ("conv2d:N=1,H=8,W=16,CI=8,CO=32,KH=3,KW=3", {1}),
        ("transpose:M=64,N=64", {1}),
    ],
)
def test_several_rows_at_once_where_an_operand_lies_along_them(spec: str, widths: set[int]) -> None:
    """Lanes of the axes other than that along which is written."""
    sketch = tile_sketch(spec)
    others = [split for shape in sketch.block.values for split in shape.axes[:-1]]
    assert {split.lanes for split in others} == widths


def test_a_box_is_turned_only_where_that_makes_another_one() -> None:
    sketch = tile_sketch("matmul:M=64,N=64,K=64")
    assert any("turned" in str(value) for value in values(sketch, "fetch0_A"))
    assert not any("turned" in str(value) for value in values(sketch, "fetch1_B"))


@pytest.mark.parametrize(
    ("extent", "threads", "register", "lanes"),
    [(61, 8, 2, 1), (64, 8, 2, 4), (7, 7, 1, 1), (1, 1, 1, 1)],
)
def test_blocks_cover_their_axis_and_never_leave_it(
    extent: int, threads: int, register: int, lanes: int
) -> None:
    part = GridAxis(
        axis=Axis(name="i", extent=extent), threads=threads, vectors=register, lanes=lanes
    )
    index = function_of(part.index, ("i_2", "i_t", "i_0", "i_l"))
    seen = {
        index(a, b, c, d)
        for a in range(part.outer.extent) for b in range(threads) for c in range(register) for d in range(lanes)  # noqa: E501
    }  # fmt: skip
    assert seen == set(range(extent))


@pytest.mark.parametrize(
    ("extent", "threads", "side"),
    [(14, 4, 2), (13, 4, 2), (7, 1, 2), (11, 2, 4), (4, 1, 4), (9, 5, 2)],
)
def test_patches_cover_their_axis_and_have_an_index_and_an_offset(
    extent: int, threads: int, side: int
) -> None:
    part = PatchAxis(axis=Axis(name="h", extent=extent), threads=threads, lanes=side)
    functions = [
        function_of(node, ("h_2", "h_t", "h_l")) for node in (part.index, part.patch, part.offset)
    ]
    seen = set()
    for point in product(range(part.outer.extent), range(threads), range(side)):
        index, number, place = (function(*point) for function in functions)
        assert divmod(index, side) == (number, place)
        seen.add(index)
    assert seen == set(range(extent))


@pytest.mark.parametrize(
    ("body", "sides"),
    [
        ("i == 0 ? X[i, j] : X[i, j] * 2", {"i": 4}),
        ("j % 2 == 0 ? X[i, j] : X[i, j // 2]", {"j": 2}),
        ("j % 2 == i ? X[i, j] : X[i, j // 2]", {}),  # compared with no constant
        ("j == 3 ? X[i, j] : 0", {}),  # too long for a thread
        ("j % 3 == 0 ? X[i, j] : (j % 2 == 0 ? X[i, j] * 2 : X[i, j] * 4)", {}),  # of two sides
    ],
)
def test_what_a_map_picks_by_are_the_lengths_of_patches(body: str, sides: dict[str, int]) -> None:
    workload = workload_from_notation(
        f"kernel p(X: f32[M, N]) -> (Y: f32[M, N]) {{ Y[i, j] = {body} }}", {"M": 4, "N": 40}
    )
    assert patch_lengths(workload.expression.stages[0]) == sides


def test_a_reduction_that_does_not_divide_counts_each_iteration_once() -> None:
    assert DepthAxis(axis=Axis(name="k", extent=12), depth=4).predicate is None
    assert DepthAxis(axis=Axis(name="k", extent=13), depth=4).predicate is not None
    assert DepthAxis(axis=Axis(name="k", extent=13), depth=4).outer.extent == 4
