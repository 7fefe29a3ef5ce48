"""The persistent sketch: who has it, that its blocks compute the expression, that its
kernels do, and what they take.

The kernels run thread by thread on the double of a GPU, which has barriers of shared
memory, copies of boxes that come as late as they may or at once, and multiplications
that happen when they are waited for.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.device.machine import needs_compiler
from tests.support.cuda_emulated import check
from tests.support.cuda_points import configs as points_of
from tests.support.cuda_serial import run_serially
from tests.support.gpu_machine import needs_nvcc
from tests.support.spaces import shared_space
from tests.support.targets import SM_80, SM_90
from tuner.lowering.cuda.codegen import cuda_kernels
from tuner.lowering.cuda.nvcc import CudaCompiler, cuda_compiler
from tuner.measure.gpu.runner import GpuRunner
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Config, Value
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.cuda.persistent_knobs import CudaPersistentSketch
from tuner.workers.backends.cuda_compiler import CudaCandidateCompiler
from tuner.workers.fleet.messages import Problem
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import error_bound, evaluate_with_magnitude, max_rel_error
from tuner.workload.spec import parse_spec, workload_from_notation
from tuner.workload.workload import Workload

pytestmark = pytest.mark.slow

# Extents that nothing divides, batches, either order of the right operand, epilogues.
WITH = (
    "matmul:M=128,N=128,K=320,dtype=float16", "matmul:M=216,N=168,K=136,dtype=bfloat16",
    "matmul:M=128,N=192,K=136,dtype=float16,transpose_b=true",
    "batch_matmul:B=2,M=120,N=64,K=72,dtype=float16",
    "dense:M=64,N=128,K=136,bias=true,act=gelu,dtype=float16",
    "dense:M=250,N=120,K=64,bias=true,act=relu,dtype=bfloat16",
    "dense:M=250,N=124,K=272,bias=true,act=relu,dtype=int8",
    "conv2d:N=2,H=16,W=8,CI=72,CO=64,KH=3,KW=3,pad=1,dtype=float16",
    "conv2d:N=2,H=9,W=14,CI=64,CO=128,KH=3,KW=2,pad=1,dilation=2,bias=true,act=relu,dtype=bfloat16",
    "conv2d:N=3,H=17,W=16,CI=72,CO=64,KH=3,KW=3,pad=1,stride=2,dtype=float16",
    "conv2d:N=3,H=15,W=16,CI=64,CO=64,KH=1,KW=1,stride=2,bias=true,act=relu,dtype=bfloat16",
    "conv1d:N=3,W=68,CI=64,CO=64,KW=3,pad=1,bias=true,dtype=float16",
    "dense:M=250,N=124,K=100,bias=true,act=gelu,numerics=tensor",
    "batch_matmul:B=2,M=120,N=64,K=72,transpose_b=true,numerics=tensor",
)  # fmt: skip
WITHOUT = (
    "matmul:M=128,N=128,K=128", "matmul:M=128,N=128,K=128,dtype=int8",
    "matmul:M=128,N=128,K=128,numerics=tensor", "dense:M=128,N=128,K=128,numerics=fast",
    "dense:M=128,N=128,K=136,dtype=int8",
    "matmul:M=32,N=128,K=128,dtype=float16", "matmul:M=128,N=132,K=128,dtype=float16",
    "matmul:M=128,N=128,K=132,dtype=float16", "matmul:M=128,N=32,K=128,dtype=float16",
    "matmul:M=128,N=128,K=128,dtype=float16,transpose_a=true", "softmax:M=64,N=64,dtype=float16",
    "conv2d:N=2,H=90,W=90,CI=64,CO=64,KH=3,KW=3,stride=9,dtype=float16",
    "conv2d:N=2,H=16,W=8,CI=72,CO=64,KH=3,KW=3,pad=1,layout=NCHW,dtype=float16",
    "conv2d:N=2,H=16,W=8,CI=24,CO=64,KH=3,KW=3,pad=1,dtype=float16",
)  # fmt: skip
# Convolutions of single pixels as models have them: the window is no axis, the weights have
# two dimensions of one point.
POINTWISE = """kernel p(X: f16[N, A, B, C], W: f16[1, 1, C, O], b: f16[O]) -> (Y: f16[N, H, V, O]) {
  S[n, h, v, o] += X[n, STRIDE * h, STRIDE * v, c] * W[0, 0, c, o]
  Y[n, h, v, o] = max(S[n, h, v, o] + b[o], 0)
}"""
# Integers of either sign, and what becomes of their sums.
QUANTIZED = {
    dtype: f"""kernel q(X: u8[M, K], W: i8[N, K], S: f32[N], z: i32[N]) -> (Y: {dtype}[M, N]) {{
  T[i, j] += i32(X[i, k]) * i32(W[j, k])
  Y[i, j] = {dtype}({value})
}}"""
    for dtype, value in (
        ("i8", "min(max(round(f32(T[i, j] + z[j]) * S[j]), -128), 127)"),
        ("u8", "i32(min(max(f32(T[i, j]) * abs(S[j]), f32(z[j])), 255))"),
        ("f16", "f32(T[i, j] - z[j]) * S[j]"),
        ("i32", "max(abs(T[i, j]) * 2, i32(S[j] * 3)) - z[j]"),
    )
}
# Floats of 8 bits of either kind, scaled.
FLOATS = {
    f"{left} {right} {dtype}": f"""\
kernel q(X: u8[M, K], W: u8[N, K], S: f32[1]) -> (Y: {dtype}[M, N]) {{
  T[i, j] += bitcast({left}, X[i, k]) * bitcast({right}, W[j, k])
  Y[i, j] = {dtype}(T[i, j] * S[0])
}}"""
    for left, right, dtype in (
        ("e4m3", "e4m3", "bf16"),
        ("e4m3", "e5m2", "f32"),
        ("e5m2", "e4m3", "f16"),
    )
}
FLOATS_EXTENTS = {"M": 125, "N": 240, "K": 400}
# Blocks take several tiles each where there are few of them.
FEW = replace(SM_90, cores=2)
TILES = ((2, 1, 1, 0, 3), (2, 1, 2, 1, 4), (1, 1, 2, 0, 3), (2, 1, 1, 1, 3))


def sketch_of(space: TargetSpace[Any]) -> CudaPersistentSketch | None:
    every = (sketch for sketches in space.sketches.values() for sketch in sketches)
    return next((sketch for sketch in every if isinstance(sketch, CudaPersistentSketch)), None)


def configs(space: TargetSpace[Any], count: int, seed: str) -> list[Config]:
    return points_of(space, count, seed, "persistent")


@pytest.mark.parametrize("spec", WITHOUT)
def test_what_is_no_dense_product_of_halves_has_no_such_sketch(spec: str) -> None:
    assert sketch_of(shared_space(spec, SM_90)) is None


def test_another_architecture_has_no_such_sketch() -> None:
    assert sketch_of(shared_space(WITH[0], SM_80)) is None


@pytest.mark.parametrize("spec", WITH)
def test_blocks_compute_the_expression(spec: str) -> None:
    workload = parse_spec(spec)
    expression = workload.expression
    arrays = make_inputs(expression, seed=4, kind="normal")
    want, scale = evaluate_with_magnitude(expression, arrays)
    space = space_of(workload, SM_90, 1)
    for config in configs(space, 1, spec):
        off = max_rel_error(
            expression, run_serially(workload, space.program(config), arrays), want, scale
        )
        assert off <= error_bound(expression), f"{config} is {off:.3g} off"


@needs_compiler
@pytest.mark.parametrize("spec", WITH)
def test_kernels_are_right_thread_by_thread(spec: str, gpu_double: None, tmp_path: Path) -> None:
    workload = parse_spec(spec)
    candidates = CudaCandidateCompiler(
        Problem(workload=workload, target=FEW, threads=1), tmp_path / "cubins"
    )
    space = candidates.space
    (config,) = configs(space, 1, spec)
    sketch = sketch_of(space)
    assert sketch is not None
    with GpuRunner() as runner:
        runner.prepare(workload)
        check(runner, candidates, config, tmp_path)
        for tile in [tile for tile in TILES if tile in sketch.block.stored]:
            tiled: dict[str, Value] = {**config, sketch.block.name: tile}
            check(runner, candidates, tiled, tmp_path)


@needs_compiler
@pytest.mark.parametrize(("stride", "height", "width"), [(1, 8, 16), (2, 9, 15)])
def test_convolutions_of_single_pixels_are_products(
    stride: int, height: int, width: int, gpu_double: None, tmp_path: Path
) -> None:
    extents = {
        "N": 1, "A": height * stride, "B": width * stride, "H": height, "V": width,
        "C": 72, "O": 64,
    }  # fmt: skip
    workload = workload_from_notation(POINTWISE.replace("STRIDE", str(stride)), extents)
    candidates = CudaCandidateCompiler(
        Problem(workload=workload, target=FEW, threads=1), tmp_path / "cubins"
    )
    space = candidates.space
    sketch = sketch_of(space)
    assert sketch is not None and (sketch.shape.pixels is None) == (stride == 1)
    (config,) = configs(space, 1, "pointwise")
    with GpuRunner() as runner:
        runner.prepare(workload)
        for tile in ((2, 1, 1, 1, 3), (1, 1, 1, 0, 3)):
            check(runner, candidates, {**config, sketch.block.name: tile}, tmp_path)


@needs_compiler
@pytest.mark.parametrize("dtype", QUANTIZED)
def test_sums_of_bytes_become_other_numbers(dtype: str, gpu_double: None, tmp_path: Path) -> None:
    workload = workload_from_notation(QUANTIZED[dtype], {"M": 125, "N": 240, "K": 144})
    candidates = CudaCandidateCompiler(
        Problem(workload=workload, target=FEW, threads=1), tmp_path / "cubins"
    )
    space = candidates.space
    sketch = sketch_of(space)
    assert sketch is not None
    (config,) = configs(space, 1, dtype)
    tile = next(tile for tile in ((2, 1, 1, 1, 3), (2, 1, 2, 1, 3)) if tile in sketch.block.stored)
    with GpuRunner() as runner:
        runner.prepare(workload)
        check(runner, candidates, {**config, sketch.block.name: tile}, tmp_path)


def byte_product(dtype: str) -> Workload:
    return workload_from_notation(FLOATS[dtype], FLOATS_EXTENTS, numerics="tensor")


@needs_compiler
@pytest.mark.parametrize("dtype", FLOATS)
def test_bytes_are_multiplied_as_floats(dtype: str, gpu_double: None, tmp_path: Path) -> None:
    workload = byte_product(dtype)
    candidates = CudaCandidateCompiler(
        Problem(workload=workload, target=FEW, threads=1), tmp_path / "cubins"
    )
    space = candidates.space
    sketch = sketch_of(space)
    assert sketch is not None
    (config,) = configs(space, 1, dtype)
    with GpuRunner() as runner:
        runner.prepare(workload)
        for tile in [tile for tile in TILES if tile in sketch.block.stored][:2]:
            check(runner, candidates, {**config, sketch.block.name: tile}, tmp_path)


# Few tiles for four blocks, whose depth they share; one for each kind of sum.
SHARED = (
    parse_spec("dense:M=330,N=120,K=520,bias=true,act=relu,dtype=float16"),
    parse_spec("conv2d:N=3,H=16,W=8,CI=64,CO=128,KH=3,KW=3,pad=1,dtype=bfloat16"),
    workload_from_notation(QUANTIZED["i8"], {"M": 330, "N": 240, "K": 1040}),
    workload_from_notation(
        FLOATS["e4m3 e5m2 f32"], {"M": 330, "N": 112, "K": 1040}, numerics="tensor"
    ),
)
SHARING = replace(SM_90, cores=4)
SHARED_TILES = ((2, 1, 1, 0, 3), (2, 1, 2, 0, 3), (2, 1, 1, 1, 4), (1, 2, 1, 0, 3))


@needs_compiler
@pytest.mark.parametrize("workload", SHARED, ids=lambda workload: workload.spec.partition(":")[0])
def test_blocks_that_share_tiles_are_right(
    workload: Workload, gpu_double: None, tmp_path: Path
) -> None:
    candidates = CudaCandidateCompiler(
        Problem(workload=workload, target=SHARING, threads=1), tmp_path / "cubins"
    )
    space = candidates.space
    sketch = sketch_of(space)
    assert sketch is not None and sketch.split.is_open
    (config,) = configs(space, 1, "shared")
    sharing = []
    for tile in [tile for tile in SHARED_TILES if tile in sketch.block.stored]:
        shared: dict[str, Value] = {
            **config,
            sketch.block.name: tile,
            sketch.split.name: "stream-k",
        }
        source = cuda_kernels(space.program(shared), SHARING, "k")
        assert len(source.launches) == 1 + len(source.workspace)
        if source.workspace:
            sharing.append(shared)
    assert sharing
    with GpuRunner() as runner:
        runner.prepare(workload)
        for shared in sharing[:2]:
            check(runner, candidates, shared, tmp_path)


def test_tiles_that_fill_the_gpu_are_whole() -> None:
    for spec, is_open in (
        ("matmul:M=4096,N=4096,K=4096,dtype=float16", False),
        ("matmul:M=1024,N=1024,K=1024,dtype=float16", True),
        ("matmul:M=1024,N=1024,K=64,dtype=float16", False),
    ):
        sketch = sketch_of(shared_space(spec, SM_90))
        assert sketch is not None and sketch.split.is_open == is_open


@needs_compiler
def test_other_kernels_convert_bytes_to_floats(gpu_double: None, tmp_path: Path) -> None:
    extents = {"M": 9, "N": 17, "K": 33}
    workload = workload_from_notation(FLOATS["e4m3 e5m2 f32"], extents)
    candidates = CudaCandidateCompiler(
        Problem(workload=workload, target=SM_90, threads=1), tmp_path / "cubins"
    )
    with GpuRunner() as runner:
        runner.prepare(workload)
        check(runner, candidates, None, tmp_path)


@needs_nvcc
def test_cubins_that_convert_bytes_compile(tmp_path: Path) -> None:
    workload = workload_from_notation(FLOATS["e4m3 e5m2 f32"], {"M": 64, "N": 64, "K": 64})
    text = cuda_kernels(space_of(workload, SM_90, 1).program({}), SM_90, "k").text
    (kernel,) = cuda_compiler(tmp_path).compile(text, SM_90).kernels
    assert not kernel.spills


def test_bytes_are_floats_of_tensor_cores_under_these_numerics_alone() -> None:
    for text in FLOATS.values():
        for numerics in ("strict", "fast"):
            workload = workload_from_notation(text, FLOATS_EXTENTS, numerics=numerics)
            assert sketch_of(space_of(workload, SM_90, 1)) is None


@needs_compiler
def test_a_kernel_stands_between_those_of_tvm(gpu_double: None, tmp_path: Path) -> None:
    """The product of an attention, its scale an epilogue, before softmax and the sum of values."""
    workload = parse_spec("attention:B=1,H=2,S=64,D=64,dtype=float16")
    candidates = CudaCandidateCompiler(
        Problem(workload=workload, target=SM_90, threads=1), tmp_path / "cubins"
    )
    (config,) = configs(candidates.space, 1, "attention")
    made = cuda_kernels(candidates.space.program(config), SM_90, "k").launches
    assert len(made) > 2 and [bool(launch.maps) for launch in made].count(True) == 1
    with GpuRunner() as runner:
        runner.prepare(workload)
        check(runner, candidates, config, tmp_path)


@pytest.mark.parametrize("spec", [WITH[0], WITH[3]])
def test_the_last_barrier_ends_where_shared_memory_does(spec: str) -> None:
    space = shared_space(spec, SM_90)
    sketch = sketch_of(space)
    assert sketch is not None
    (config,) = configs(space, 1, spec)
    for tile in sketch.block.values:
        tiled = {**config, sketch.block.name: tile.stored}
        text = cuda_kernels(space.program(tiled), SM_90, "k").text
        ring, strips, barriers = (
            int(number)
            for number in re.findall(r"(?:strips = ring|full = strips|empty = full) \+ (\d+)", text)
        )
        assert ring % 1024 == 0 and strips % 1024 == 0  # the permutation begins there
        end = ring + strips + 2 * barriers
        assert end == sketch.footprint(tile).shared_bytes <= 227 * 1024, tile


def test_a_grid_is_what_runs_at_a_time() -> None:
    space = shared_space("matmul:M=4096,N=4096,K=64,dtype=float16", SM_90)
    sketch = sketch_of(space)
    assert sketch is not None
    for tile, blocks in (((2, 1, 4, 0, 4), 132), ((2, 2, 3, 1, 3), 132)):
        config: Config = {"sketch": "C:persistent", sketch.block.name: tile}
        (launch,) = cuda_kernels(space.program(config), SM_90, "k").launches
        assert launch.grid == (blocks, 1, 1)


@needs_nvcc
@pytest.mark.parametrize(
    "spec", [WITH[0], *(pytest.param(spec, marks=pytest.mark.long) for spec in WITH[1:])]
)
def test_cubins_do_not_spill(spec: str, tmp_path: Path) -> None:
    space, compiler = shared_space(spec, SM_90), cuda_compiler(tmp_path)
    for config in configs(space, 3, spec):
        check_cubin(space, config, compiler)


def check_cubin(
    space: TargetSpace[Any], config: Config, compiler: CudaCompiler, kernels: int = 1
) -> None:
    text = cuda_kernels(space.program(config), SM_90, "k").text
    made = compiler.compile(text, SM_90).kernels
    assert len(made) == kernels
    for kernel in made:
        assert not kernel.spills and kernel.stack_bytes == 0 and kernel.shared_bytes == 0, (
            config,
            kernel,
        )


@needs_nvcc
@pytest.mark.parametrize("dtype", FLOATS)
def test_cubins_of_bytes_as_floats_do_not_spill(dtype: str, tmp_path: Path) -> None:
    space, compiler = space_of(byte_product(dtype), SM_90, 1), cuda_compiler(tmp_path)
    sketch = sketch_of(space)
    assert sketch is not None
    (config,) = configs(space, 1, dtype)
    large = max(sketch.block.values, key=lambda tile: tile.accumulators)
    check_cubin(space, {**config, sketch.block.name: large.stored}, compiler)


@needs_nvcc
def test_cubins_of_shared_tiles_do_not_spill(tmp_path: Path) -> None:
    space = shared_space("dense:M=512,N=1024,K=2048,bias=true,dtype=float16", SM_90)
    sketch = sketch_of(space)
    assert sketch is not None
    (config,) = configs(space, 1, "shared")
    for tile in ((2, 1, 2, 1, 4), (2, 1, 2, 0, 4)):
        shared: dict[str, Value] = {
            **config,
            sketch.block.name: tile,
            sketch.split.name: "stream-k",
        }
        check_cubin(space, shared, cuda_compiler(tmp_path), kernels=2)
