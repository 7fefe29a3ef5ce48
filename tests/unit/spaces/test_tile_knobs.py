"""The tile sketch: along which axes vectors lie, which of them are wide, and which
cache blocks there are."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from tests.support.programs import check
from tests.support.spaces import shared_space
from tests.support.targets import ZEN5
from tuner.spaces.by_target import space_of
from tuner.spaces.cpu.copy_values import copy_modes
from tuner.spaces.cpu.facts import Unrolling
from tuner.spaces.cpu.reduction_values import unrollings
from tuner.spaces.cpu.tile_sketch import TileSketch
from tuner.spaces.program.loops import LoopId
from tuner.spaces.program.program import Fuse
from tuner.target.target import Target
from tuner.workload.spec import workload_from_notation

EIGHT = replace(ZEN5, vector_bytes=32, vector_registers=16, isa=("avx2", "fma"))  # lanes of float32
SIXTEEN = replace(ZEN5, vector_bytes=64, vector_registers=32, isa=("avx2", "fma", "avx512f"))


@pytest.mark.parametrize(
    ("spec", "axes"),
    [
        # The output's last axis, contiguous or still in all reads, and as long as whole vectors.
        ("matmul:M=33,N=64,K=20", ["j"]),
        ("conv2d:N=1,H=16,W=16,CI=8,CO=24,KH=3,KW=3,pad=1,layout=NCHW", ["w"]),
        # Read in steps of two it makes no vectors; the weights do, packed: 12 times as
        # large as its source the input may not be.
        ("conv2d:N=1,H=64,W=64,CI=3,CO=24,KH=7,KW=7,stride=2,pad=3,layout=NCHW", ["w", "k"]),
        # Seven points overlap by one in eight, 15 by one in 16, 49 by seven in 56, 63 by one in 64.
        ("conv2d:N=1,H=7,W=7,CI=8,CO=24,KH=3,KW=3,pad=1,layout=NCHW", ["w", "k"]),
        ("conv2d:N=1,H=8,W=15,CI=8,CO=24,KH=3,KW=3,pad=1,layout=NCHW", ["w", "k"]),
        ("conv2d:N=1,H=7,W=7,CI=8,CO=64,KH=1,KW=1,layout=NCHW", ["hw", "k"]),
        ("conv2d:N=1,H=9,W=7,CI=8,CO=64,KH=1,KW=1,layout=NCHW", ["hw"]),
    ],
)
def test_vectors_lie_along(spec: str, axes: list[str]) -> None:
    space = shared_space(spec, EIGHT).space
    assert [sketch.name.rpartition("tile_")[2] for sketch in space.combinations] == axes


def test_chains_of_arithmetic_take_turns_in_wide_vectors() -> None:
    space = shared_space("elementwise:M=8,N=64,act=gelu", EIGHT)
    steps = {}
    for point in space.space.sample(np.random.default_rng(0), 60):
        config = space.space.config(point)
        wide = any(
            isinstance(step, Fuse) and step.into == LoopId("Y", "ij_v")
            for step in space.program(config).steps
        )
        steps[config["Y.tile_ij.register"], config["Y.tile_ij.mathematics"]] = wide
    assert {key for key, wide in steps.items() if wide} == {
        ((16,), "polynomial"),
        ((32,), "polynomial"),
    }
    assert len(steps) == 8


@pytest.mark.parametrize(
    ("spec", "target", "most"),
    [
        # Most accumulators by vectors side by side, beside these and, for several, the
        # element that they share.
        ("matmul:M=16,N=256,K=64", SIXTEEN, {1: 16, 2: 28, 3: 27, 4: 24, 6: 24, 8: 16}),
        ("matmul:M=16,N=256,K=64", EIGHT, {1: 14, 2: 12, 3: 12, 4: 8}),
        # Lanes share nothing: of the two operands of a step one is kept, the other
        # comes from memory.
        (
            "depthwise_conv2d:N=1,H=28,W=28,C=64,KH=3,KW=3,pad=1",
            SIXTEEN,
            {1: 30, 2: 30, 3: 27, 4: 28},
        ),
    ],
)
def test_accumulators_leave_registers_for_the_operands(
    spec: str, target: Target, most: dict[int, int]
) -> None:
    (sketch,) = shared_space(spec, target).space.combinations
    lanes, largest = target.vector_bytes // 4, dict.fromkeys(most, 0)
    for tile in next(knob.values for knob in sketch.knobs if knob.name.endswith("register")):
        assert isinstance(tile, tuple)
        largest[tile[-1] // lanes] = max(largest[tile[-1] // lanes], prod(tile) // lanes)
    assert largest == most


@pytest.mark.parametrize(
    ("spec", "values"),
    [
        ("conv2d:N=1,H=8,W=8,CI=16,CO=24,KH=3,KW=5", ((0, 3), (1, 5), (2, 1), (2, 2), (2, 4))),
        ("conv2d:N=1,H=8,W=8,CI=16,CO=24,KH=1,KW=1", ((2, 1), (2, 2), (2, 4))),
        ("matmul:M=9,N=32,K=9", ((0, 1), (0, 9))),
        ("matmul:M=9,N=32,K=7", ()),
        ("matmul:M=9,N=32,K=1", ()),
    ],
)
def test_short_reductions_are_unrolled_as_a_whole(
    spec: str, values: tuple[tuple[int, int], ...]
) -> None:
    """And axes of a single step are no choice."""
    sketch = shared_space(spec, SIXTEEN).space.combinations[0]
    assert (
        next((knob.values for knob in sketch.knobs if knob.name.endswith("unroll")), ()) == values
    )


@pytest.mark.parametrize(
    ("threads", "blocks"),
    [(1, (0, 32, 64, 100)), (2, (0, 32, 50, 64, 100)), (3, (0, 32, 34, 64, 100))],
)
def test_a_threads_share_of_an_axis_is_a_block(threads: int, blocks: tuple[int, ...]) -> None:
    sketch, *_ = shared_space("matmul:M=9,N=100,K=20", EIGHT, threads).space.combinations
    assert next(knob.values for knob in sketch.knobs if knob.name.endswith("block_j")) == blocks


@pytest.mark.parametrize("value", ["X[j, i] * 2", "exp(X[j, i])", "tanh(X[j, i]) / X[j, i]"])
def test_what_is_turned_may_cost_mathematics(value: str) -> None:
    workload = workload_from_notation(
        f"kernel turn(X: f32[M, N]) -> (Y: f32[N, M]) {{ Y[i, j] = {value} }}", {"M": 19, "N": 24}
    )
    sketches = space_of(workload, EIGHT, threads=1).space.combinations
    assert any("turn_" in sketch.name for sketch in sketches)
    check(workload, configs=4)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        # What is read along a diagonal is copied with all beside it: no copy is worth that.
        ("kernel diagonal(X: f32[40, 40]) -> (Y: f32[64]) { Y[i] = abs(X[2 * i, i] else 1) for "
        "i in 0:64 }", ["none"]),
        # A border of one, each element read once: whatever is faster.
        ("kernel once(X: f32[30, 30]) -> (Y: f32[32, 32]) { Y[i, j] = abs(X[i - 1, j - 1] else "
        "1) for i in 0:32, j in 0:32 }",
         ["none", "pad"]),
        # Read again and again, with a border that differs from lane to lane.
        ("kernel window(X: f32[32]) -> (Y: f32[32]) { Y[i] += X[i + r - 1] else 0 for "
        "r in 0:3 }", ["pad"]),
    ],
)  # fmt: skip
def test_padded_copies_are_of_what_is_read(text: str, values: list[str]) -> None:
    workload = workload_from_notation(text, {})
    space = space_of(workload, EIGHT, threads=1)
    sketch = next(
        sketch for sketch in next(iter(space.sketches.values())) if isinstance(sketch, TileSketch)
    )
    (read,) = sketch.stage.reads
    assert [mode.value for mode in copy_modes(sketch.stage, read)] == values
    check(workload, configs=6)


@pytest.mark.parametrize(
    ("extent", "factors"),
    [(7, [7]), (8, [1, 2, 4]), (9, [1, 9]), (11, [1]), (12, [1, 2, 4])],
)
def test_a_reduction_is_unrolled_by_what_divides_it(extent: int, factors: list[int]) -> None:
    """As a whole where it is short, and may be where nothing else divides it."""
    space = shared_space(f"matmul:M=32,N=32,K={extent}", EIGHT)
    sketch = space.sketches["C:tile_j"][0]
    assert isinstance(sketch, TileSketch)
    assert unrollings(sketch.stage) == [Unrolling(position=0, factor=factor) for factor in factors]
