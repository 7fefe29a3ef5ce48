"""Sampled kernels of every operator as the CUDA C++ they are, run thread by thread on
the double of a GPU.

What the serial tests cannot show is in this: barriers, reductions across threads as
lowered, asynchronous copies and their waits, instructions of tensor cores, alignment of
vectors, launches. The product's own runner loads, checks and times them; only driver
and compiler are doubles. Threads run one after another up to a barrier, forwards and
backwards in turn: what is wrong in another order still is for a GPU to show.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.device.machine import needs_compiler
from tests.support.cuda_emulated import check
from tests.support.cuda_serial import by_operator
from tests.support.targets import SM_90
from tuner.errors import IllegalSchedule
from tuner.measure.gpu.runner import GpuRunner
from tuner.spaces.core.space import Config
from tuner.workers.backends.cuda_compiler import CudaCandidateCompiler
from tuner.workers.fleet.messages import Problem
from tuner.workload.spec import parse_spec

FIRST, LONG = 2, 4  # random points of each spec: that `make test-cuda` has some of, and in all

pytestmark = [pytest.mark.slow, needs_compiler]


@pytest.fixture
def runner(gpu_double: None) -> GpuRunner:
    return GpuRunner()


def points(candidates: CudaCandidateCompiler, count: int, spec: str) -> list[Config | None]:
    """The default schedule and random ones."""
    drawn = candidates.space.space.sample(
        np.random.default_rng([zlib.crc32(spec.encode()), 2]), count
    )
    return [None, *map(candidates.space.space.config, drawn)]


def compiler_of(spec: str, folder: Path) -> CudaCandidateCompiler:
    problem = Problem(workload=parse_spec(spec), target=SM_90, threads=1)
    return CudaCandidateCompiler(problem, folder / "cubins")


def check_points(
    runner: GpuRunner,
    candidates: CudaCandidateCompiler,
    configs: Sequence[Config | None],
    folder: Path,
) -> None:
    runner.prepare(candidates.problem.workload)
    for config in configs:
        with suppress(IllegalSchedule):
            check(runner, candidates, config, folder)


def is_first(configs: Sequence[Config | None], place: int) -> bool:
    """Whether `make test-cuda` runs the point of this place: the default schedule, and of the
    first random ones one of each sketch."""
    config = configs[place]
    if config is None:
        return True
    had = [other["sketch"] for other in configs[:place] if other is not None]
    return place <= FIRST and config["sketch"] not in had


def check_operator(runner: GpuRunner, operator: str, folder: Path, *, first: bool) -> None:
    """The points of an operator's specs that `make test-cuda` runs, or the others."""
    for spec in by_operator()[operator]:
        candidates = compiler_of(spec, folder)
        configs = points(candidates, LONG, spec)
        chosen = [
            config for place, config in enumerate(configs) if is_first(configs, place) == first
        ]
        check_points(runner, candidates, chosen, folder)


@pytest.mark.parametrize(
    "spec",
    [
        "matmul:M=33,N=40,K=24",
        "matmul:M=32,N=48,K=32,dtype=float16",
        "softmax:M=5,N=77",
        "transpose:M=45,N=36",
    ],
)
def test_kernels_of_each_sketch_are_right_thread_by_thread(
    spec: str, runner: GpuRunner, tmp_path: Path
) -> None:
    candidates = compiler_of(spec, tmp_path)
    with runner:
        check_points(runner, candidates, points(candidates, 2, spec), tmp_path)


@pytest.mark.parametrize("spec", ["reduce_max:M=8,N=40", "elementwise:M=8,N=40,act=relu"])
def test_maxima_keep_nan(spec: str, runner: GpuRunner, tmp_path: Path) -> None:
    candidates = compiler_of(spec, tmp_path)
    with runner:
        runner.prepare(candidates.problem.workload)
        for config in points(candidates, 1, spec):
            check(runner, candidates, config, tmp_path, "promotion")


def test_a_box_that_few_threads_fetch_is_complete_before_others_read_it(
    runner: GpuRunner, tmp_path: Path
) -> None:
    """One row of B for each step: eight threads of sixty-four bring it, all read it,
    and it is overwritten in the next step."""
    candidates = compiler_of("matmul:M=48,N=40,K=32", tmp_path)
    config = tiled((8, 2, 1, 8, 1, 1, 1), "shared 4 padded", "shared 1 padded", "none")
    with runner:
        runner.prepare(candidates.problem.workload)
        check(runner, candidates, config, tmp_path)


def tiled(
    tile: tuple[int, ...], left: str, right: str, pipeline: str, unroll: int = 1, warp: int = 0
) -> Config:
    """A point of a matmul's tile sketch."""
    return {
        "sketch": "C:tile", "C.tile.tile": tile, "C.tile.unroll": unroll, "C.tile.warp": warp,
        "C.tile.pipeline": pipeline,
        "C.tile.fetch0_A": left, "C.tile.fetch1_B": right, "C.tile.order": (0, 1),
    }  # fmt: skip


@pytest.mark.parametrize("pipeline", ["none", "registers", "async"])
@pytest.mark.parametrize(
    ("spec", "tile", "left", "right"),
    [
        ("matmul:M=64,N=64,K=64", (8, 1, 4, 8, 1, 4, 8), "shared 4 turned padded", "shared 4"),
        ("matmul:M=64,N=64,K=64", (8, 2, 4, 8, 1, 4, 16), "shared 1 turned", "direct"),
        ("matmul:M=61,N=67,K=71", (8, 1, 4, 8, 1, 1, 4), "shared 1 turned padded", "shared 1"),
    ],
)
def test_copies_that_overlap_with_the_computing_arrive_in_time(
    spec: str,
    tile: tuple[int, ...],
    left: str,
    right: str,
    pipeline: str,
    runner: GpuRunner,
    tmp_path: Path,
) -> None:
    """Rows of several elements from a turned box, in every way that its copies run
    ahead; extents that divide and that do not."""
    candidates = compiler_of(spec, tmp_path)
    with runner:
        runner.prepare(candidates.problem.workload)
        check(runner, candidates, tiled(tile, left, right, pipeline, unroll=4), tmp_path)


@pytest.mark.parametrize("pipeline", ["none", "registers", "async"])
@pytest.mark.parametrize(
    ("spec", "tile", "warp"),
    [
        ("matmul:M=64,N=64,K=64", (8, 2, 4, 16, 1, 4, 16), 4),
        ("matmul:M=61,N=67,K=71", (16, 1, 1, 8, 1, 1, 8), 8),
        ("matmul:M=20,N=64,K=9", (4, 2, 1, 16, 1, 4, 1), 4),
    ],
)
def test_warps_of_several_rows_compute_each_element_once(
    spec: str, tile: tuple[int, ...], warp: int, pipeline: str, runner: GpuRunner, tmp_path: Path
) -> None:
    """Several warps down and along a block, one warp down; boxes with fewer loads than threads."""
    candidates = compiler_of(spec, tmp_path)
    with runner:
        runner.prepare(candidates.problem.workload)
        check(
            runner,
            candidates,
            tiled(tile, "shared 1 turned padded", "shared 4", pipeline, unroll=4, warp=warp),
            tmp_path,
        )


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("operator", by_operator())
def test_kernels_of_every_operator_are_right_thread_by_thread(
    operator: str, runner: GpuRunner, tmp_path: Path
) -> None:
    with runner:
        check_operator(runner, operator, tmp_path, first=True)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("operator", by_operator())
def test_more_kernels_of_every_operator_are_right_thread_by_thread(
    operator: str, runner: GpuRunner, tmp_path: Path
) -> None:
    with runner:
        check_operator(runner, operator, tmp_path, first=False)
