"""CUDA source for each family of operators without a GPU; cubins and ptxas's figures
where nvcc is installed."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.device.machine import needs_compiler
from tests.support.cuda_sources import sources
from tests.support.gpu_machine import needs_nvcc
from tests.support.spaces import shared_space
from tuner.errors import UsageError
from tuner.lowering.compiler import BuildError
from tuner.lowering.cuda.codegen import cuda_built, cuda_kernels
from tuner.lowering.cuda.nvcc import KernelResources, cuda_compiler, find_nvcc, resources
from tuner.measure.gpu.resources import Resources
from tuner.runtime.cuda_module import CudaModuleError, unpacked
from tuner.spaces.core.space import Config
from tuner.spaces.default_schedule import default_program
from tuner.target.cuda import STATIC_SHARED_BYTES, cuda_target, cuda_targets
from tuner.workload.catalogue import OPERATORS
from tuner.workload.spec import parse_spec

SPECS = (
    "matmul:M=61,N=67,K=71", "matmul:M=512,N=512,K=512", "matmul:M=128,N=256,K=512,dtype=float16",
    "qdense:M=4,N=256,K=128,group=32",
    "matmul:M=128,N=256,K=512,dtype=bfloat16", "dense:M=64,N=256,K=128,bias=true,act=gelu",
    "conv2d:N=4,H=28,W=28,CI=32,CO=64,KH=3,KW=3,pad=1,act=relu",
    "max_pool2d:N=2,H=31,W=31,C=16,KH=3,KW=3,stride=2,pad=1",
    "softmax:M=100,N=1000", "layer_norm:M=512,N=768", "reduce_sum:M=500,N=1301,axis=1",
    "reduce_max:M=500,N=130,axis=0",
    "reduce_max:M=50,N=1024,axis=1", "transpose:M=513,N=1000", "attention:B=2,H=4,S=64,D=32",
)  # fmt: skip
# One of each operator at a size that people have, and the dtypes whose code differs.
COMPILED = (
    "matmul:M=61,N=67,K=71", "matmul:M=128,N=256,K=512,dtype=float16",
    "matmul:M=1024,N=1024,K=1024,dtype=bfloat16",
    "matmul:M=256,N=256,K=512,dtype=int8", "batch_matmul:B=8,M=128,N=128,K=64",
    "dense:M=64,N=256,K=128,bias=true,act=gelu", "qdense:M=4,N=256,K=128,group=32",
    "qmatmul:M=64,N=256,K=128,bias=true", "qconv2d:N=1,H=14,W=14,CI=64,CO=64,KH=3,KW=3,pad=1",
    "conv1d:N=8,W=256,CI=32,CO=64,KW=3,pad=1",
    "conv2d:N=4,H=28,W=28,CI=32,CO=64,KH=3,KW=3,pad=1,act=relu",
    "conv3d:N=1,D=8,H=16,W=16,CI=16,CO=32,KD=3,KH=3,KW=3,pad=1",
    "conv2d_transpose:N=1,H=16,W=16,CI=32,CO=32,KH=2,KW=2,stride=2",
    "depthwise_conv2d:N=1,H=56,W=56,C=64,KH=3,KW=3,pad=1",
    "max_pool2d:N=2,H=31,W=31,C=16,KH=3,KW=3,stride=2,pad=1",
    "avg_pool2d:N=2,H=32,W=32,C=64,KH=2,KW=2,stride=2", "global_avg_pool2d:N=8,H=7,W=7,C=256",
    "softmax:M=100,N=1000",
    "log_softmax:M=128,N=4096", "layer_norm:M=512,N=768", "rms_norm:M=512,N=1024",
    "batch_norm:N=4,H=28,W=28,C=64",
    "reduce_sum:M=500,N=1301,axis=1", "reduce_max:M=500,N=130,axis=0",
    "reduce_mean:M=512,N=512,axis=1",
    "transpose:M=513,N=1000", "elementwise:M=512,N=1000,act=tanh", "bias_act:M=512,N=1024,act=gelu",
    "attention:B=2,H=4,S=64,D=32", "embedding:N=128,V=1000,D=256",
    "embedding_bag:V=100,D=32,B=8,L=4", "segment_reduce:M=16,N=64,D=32", "spmv:M=64,N=64",
    "spmm:M=64,N=64,K=32", "sddmm:M=64,N=64,K=32",
    "mlp:M=16,K=64,J=128", "gather_matmul:V=1000,M=32,N=64,K=32", "scatter_add:M=64,N=256,D=32",
    "slide_layer:B=8,D=32,C=1000,L=16", "slide_layer_gradient:B=8,D=32,C=1000,L=16",
    "simhash:B=8,D=32,T=4", "dwta_hash:B=8,D=32,T=4",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS)
def test_source_is_generated(spec: str) -> None:
    groups = len(
        shared_space(spec, cuda_target("sm_80", lambda fingerprint: "declared")).algorithm.groups
    )
    for source in sources(spec, "sm_80", 2):
        assert len(set(re.findall(r"__global__ void \S+ (?:1\) )?(\w+)\(", source))) == groups, (
            "each group is one kernel"
        )
        assert "threadIdx.x" in source


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS)
def test_launches_are_those_of_the_source(spec: str) -> None:
    """Names, arguments and threads by what the source itself declares; the grid covers
    the output."""
    target = cuda_target("sm_80", lambda fingerprint: "declared")
    space = shared_space(spec, target)
    (point,) = space.space.sample(np.random.default_rng(0), 1)
    program = space.program(space.space.config(point))
    made = cuda_kernels(program, target, "k")
    # TVM declares each kernel before it defines it; our own generators define it only.
    heads = re.findall(
        r"__global__ void __launch_bounds__\((\d+)(?:, 1)?\) (\w+)\(([^)]*)\)\s*[;{]", made.text
    )
    declared = list({head[1]: head for head in heads}.values())
    assert len(declared) == len(made.launches) == len(space.algorithm.groups)
    names = {tensor.name for tensor in (*program.inputs, *program.outputs)} | {
        buffer.name for buffer in program.buffers
    }
    for (threads, name, parameters), launch in zip(declared, made.launches, strict=True):
        assert (launch.kernel, math.prod(launch.block)) == (name, int(threads))
        written = [re.sub(r"_ptr$", "", text.split()[-1]) for text in parameters.split(",")]
        assert set(launch.arguments) <= names and len(launch.arguments) == len(written)
        if "_ptr" in parameters:  # TVM names them by tensors, our own generators by roles
            assert list(launch.arguments) == written
        assert launch.grid[0] >= 1 and launch.grid[1:] == (1, 1)


def overlapped(pipeline: str, warp: int = 0) -> str:
    """The source of a matmul whose operands go through shared memory, the left one turned."""
    target = cuda_target("sm_90", lambda fingerprint: "declared")
    space = shared_space("matmul:M=256,N=256,K=256", target)
    config: Config = {
        "sketch": "C:tile", "C.tile.tile": (16, 2, 4, 16, 2, 4, 8), "C.tile.unroll": 8,
        "C.tile.warp": warp,
        "C.tile.pipeline": pipeline, "C.tile.fetch0_A": "shared 4 turned padded",
        "C.tile.fetch1_B": "shared 4",
        "C.tile.order": (0, 1),
    }  # fmt: skip
    return cuda_kernels(space.program(config), target, "k").text


def test_copies_through_registers_are_loaded_before_the_computing_and_stored_after_it() -> None:
    loop = overlapped("registers").partition("for (int k_2")[2]
    load, compute, store = (
        loop.index("= *(float4*)(A_ptr"),
        loop.index("C_acc_ptr["),
        loop.index("C_fetch1_ptr + ("),
    )
    assert load < compute < store


def test_asynchronous_copies_are_of_elements_that_lie_side_by_side() -> None:
    """What is turned is copied by single elements."""
    source = overlapped("async")
    assert "cp.async.wait_group 1" in source
    for buffer, width in (("C_fetch0_ptr", "4"), ("C_fetch1_ptr", "16")):
        copies = re.findall(rf"ptx_cp_async\w*?_(\d+)_\d+_\d+\({buffer}", source)
        assert copies and set(copies) == {width}


def test_a_warp_covers_as_many_rows_of_threads_as_it_is_told() -> None:
    """The lane within the warp chooses one of four rows and one of eight columns."""
    rows, source = overlapped("none"), overlapped("none", warp=4)
    assert "threadIdx.y" in rows and "threadIdx.y" not in source
    assert "(((int)threadIdx.x) & 31) >> 3)" in source and "(((int)threadIdx.x) & 7)" in source
    assert "__launch_bounds__(256)" in source


@pytest.mark.slow
@needs_nvcc
@pytest.mark.parametrize("warp", [0, 4])
@pytest.mark.parametrize("pipeline", ["none", "registers", "async"])
def test_two_blocks_of_the_usual_tile_fit_a_multiprocessor(
    pipeline: str, warp: int, tmp_path: Path
) -> None:
    """128 by 128 sums by 256 threads: everything indexed by constants stays in
    registers, and no more than 128 of them."""
    target = cuda_target("sm_90", lambda fingerprint: "declared")
    (kernel,) = cuda_compiler(tmp_path).compile(overlapped(pipeline, warp), target).kernels
    assert kernel.registers <= 128 and kernel.stack_bytes == 0, kernel


@pytest.mark.slow  # a process that loads TVM
def test_the_process_that_made_source_ends_well() -> None:
    code = (
        "from tests.support.cuda_sources import sources\n"
        "print(sources('softmax:M=4,N=64', 'sm_90', 1)[0].count('__global__'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "2"), done.stderr


@pytest.mark.slow
@needs_compiler
def test_what_tvm_could_compile_it_leaves_to_us_and_compiles_for_others(
    doubles: Mapping[str, str],
) -> None:
    """On a machine with a driver and CUDA's runtime, TVM's own library for CUDA loads
    and compiles what is generated."""
    code = (
        "import tvm, tvm_ffi\n"
        "asked = []\n"
        "tvm_ffi.register_global_func('tvm_callback_cuda_compile', lambda code: "
        "asked.append(code) or b'', override=True)\n"
        "from tests.support.cuda_sources import sources\n"
        "made = sources('softmax:M=4,N=64', 'sm_90', 1)[0]\n"
        "ours = len(asked)\n"
        "tvm_ffi.get_global_func('tvm_callback_cuda_compile')('of another')\n"
        "loaded = tvm_ffi.get_global_func('ffi.Module.create.cuda', allow_missing=True) is "
        "not None\n"
        "print(loaded, made.count('__global__'), ours, asked)\n"
    )
    env = os.environ | dict(doubles)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "True 2 0 ['of another']"), done.stderr


def test_a_schedule_without_a_grid_is_no_kernel() -> None:
    with pytest.raises(BuildError):
        cuda_kernels(
            default_program(parse_spec("softmax:M=3,N=7")),
            cuda_target("sm_80", lambda fingerprint: "declared"),
            "k",
        )


@pytest.mark.slow
@needs_nvcc
@pytest.mark.parametrize("arch", cuda_targets())
@pytest.mark.parametrize(
    "spec", [*COMPILED[:4], *(pytest.param(spec, marks=pytest.mark.long) for spec in COMPILED[4:])]
)
def test_sources_compile_for_each_architecture_and_nothing_spills(
    spec: str, arch: str, tmp_path: Path
) -> None:
    compiler, target = cuda_compiler(tmp_path), cuda_target(arch, lambda fingerprint: "declared")
    cubin = compiler.compile(sources(spec, arch, 1)[0], target)
    assert cubin.code.startswith(b"\x7fELF")
    assert len(cubin.kernels) == len(shared_space(spec, target).algorithm.groups)
    for kernel in cubin.kernels:
        assert 0 < kernel.registers <= 255 and kernel.shared_bytes <= STATIC_SHARED_BYTES
        assert not kernel.spills, kernel


def test_twenty_operators_and_more_are_compiled_for_each_architecture() -> None:
    assert {spec.partition(":")[0] for spec in COMPILED} == set(OPERATORS)
    assert len(COMPILED) >= 20 and set(cuda_targets()) >= {"sm_80", "sm_90"}


@needs_nvcc
def test_a_module_survives_its_packing_and_nothing_else_passes_for_one(tmp_path: Path) -> None:
    target = cuda_target("sm_80", lambda fingerprint: "declared")
    space = shared_space("attention:B=1,H=2,S=20,D=16", target)
    module = cuda_built(
        space.program(space.space.config(space.space.unrank(0))),
        target,
        "attend",
        cuda_compiler(tmp_path),
    ).module
    assert [tensor.name for tensor in module.workspace] == ["G", "P"] and len(module.launches) == 3
    packed = module.pack()
    assert unpacked(packed) == module
    for damaged in (b"", packed[:-1], packed[:40], packed + b"x", b"tuner-cuda-1\n" + b"\xff" * 40):
        with pytest.raises(CudaModuleError):
            unpacked(damaged)
    launch = replace(module.launches[0], arguments=("Q", "nothing"))
    with pytest.raises(CudaModuleError, match="nothing"):
        replace(module, launches=(launch,)).check()


@needs_nvcc
def test_what_was_compiled_is_kept_and_what_was_refused_too(tmp_path: Path) -> None:
    target = cuda_target("sm_90", lambda fingerprint: "declared")
    compiler = cuda_compiler(tmp_path)
    kernel = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] *= 2; }'
    made = compiler.compile(kernel, target)
    with pytest.raises(BuildError, match="missing"):
        compiler.compile("int oops = missing;", target)
    gone = replace(compiler, nvcc=tmp_path / "gone")
    assert gone.compile(kernel, target) == made
    with pytest.raises(BuildError, match="missing"):
        gone.compile("int oops = missing;", target)
    with pytest.raises(FileNotFoundError):
        gone.compile(kernel, cuda_target("sm_80", lambda fingerprint: "declared"))
    assert made.kernels[0].name == "k"


@needs_nvcc
@needs_nvcc
def test_what_a_candidate_takes_comes_with_it(tmp_path: Path) -> None:
    """Of three kernels the most registers and shared memory; a second build, which
    compiles nothing, says the same."""
    target, compiler = cuda_target("sm_80", lambda fingerprint: "declared"), cuda_compiler(tmp_path)
    space = shared_space("attention:B=1,H=2,S=20,D=16", target)
    program = space.program(space.space.config(space.space.unrank(0)))
    built = cuda_built(program, target, "attend", compiler)
    kernels = compiler.compile(cuda_kernels(program, target, "attend").text, target).kernels
    assert isinstance(built.resources, Resources) and len(kernels) == 3
    assert (
        built.resources.registers == max(kernel.registers for kernel in kernels)
        and built.resources.spill_bytes == 0
    )
    assert built.resources.shared_bytes == max(kernel.shared_bytes for kernel in kernels)
    assert 1 <= built.resources.resident_warps <= 64
    assert cuda_built(program, target, "attend", compiler).resources == built.resources


def test_a_missing_header_is_not_held_against_the_source(tmp_path: Path) -> None:
    compiler = cuda_compiler(tmp_path)
    with pytest.raises(BuildError, match="misses a file"):
        compiler.compile(
            "#include <no_such_header.h>", cuda_target("sm_80", lambda fingerprint: "declared")
        )
    assert not list(tmp_path.iterdir())


def test_ptxas_is_read() -> None:
    said = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_90'
ptxas info    : Function properties for first
    24 bytes stack frame, 20 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 24 bytes cumulative stack size, 4096 bytes smem
ptxas info    : Compiling entry function 'second' for 'sm_90'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
"""
    first, second = resources(said)
    assert first == KernelResources(
        name="first",
        registers=255,
        stack_bytes=24,
        spill_store_bytes=20,
        spill_load_bytes=16,
        shared_bytes=4096,
    )
    assert first.spills
    assert (second.name, second.registers, second.shared_bytes, second.spills) == (
        "second",
        10,
        0,
        False,
    )


def test_nvcc_is_looked_for_in_its_places(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "nvcc").write_text("#!/bin/sh\nexit 1\n")
    (folder / "nvcc").chmod(0o755)
    assert find_nvcc({"CUDA_HOME": str(tmp_path), "PATH": ""}) == folder / "nvcc"
    assert find_nvcc({"PATH": str(folder)}) == folder / "nvcc"


def test_a_broken_compiler_is_said_to_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvcc").write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    (tmp_path / "bin" / "nvcc").chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="broken"):
        cuda_compiler(tmp_path)
