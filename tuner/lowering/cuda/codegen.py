"""Code generation for CUDA: a program to source, launches and machine code.

No GPU is needed. Source comes from TVM's code generator, the cubin from
`tuner.lowering.cuda.nvcc` or `tuner.lowering.cuda.nvrtc`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tuner.lowering.compiler import BuildError
from tuner.lowering.cuda.launch import LaunchWatch
from tuner.lowering.cuda.nvcc import CudaCompiler, KernelResources
from tuner.lowering.cuda.specialized import kernels_of, with_specialized
from tuner.lowering.cuda.warpgroup_source import with_instructions
from tuner.lowering.passes.guarded_copies import use_guarded_copies
from tuner.lowering.passes.pipeline import register_pipeline
from tuner.lowering.schedule import schedule
from tuner.measure.gpu.resources import Resources
from tuner.runtime.cuda_module import CudaModule, Launch
from tuner.spaces.program.instructions import WarpgroupMultiply
from tuner.spaces.program.marks import GuardedCopy
from tuner.spaces.program.program import Buffer, Pipeline, Program, Specialize, Tensorize
from tuner.spaces.program.specialized import without_specialized
from tuner.target.occupancy import resident_warps
from tuner.target.target import Target
from tuner.workload.expression import Tensor

_Getter = Callable[..., list[Any]]  # of TVM's expressions, whose class has no public name
_SOURCE_ONLY: ContextVar[bool] = ContextVar("source_only", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaSource:
    """Kernels as CUDA C++, and how they are launched one after another."""

    text: str
    launches: tuple[Launch, ...]
    workspace: tuple[Tensor, ...] = ()  # beside the program's buffers


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaBuilt:
    """A compiled program and the device resources that it needs."""

    module: CudaModule
    resources: Resources | None  # None where the compiler did not report them


def cuda_kernels(program: Program, target: Target, symbol: str) -> CudaSource:
    """The program's kernels as CUDA C++ with their launches.

    Raises IllegalSchedule where a step cannot be applied, BuildError where TVM's code
    generator refuses the schedule.
    """
    products = [step for step in program.steps if isinstance(step, Specialize)]
    if not products:
        return _tvm_kernels(program, target, symbol)
    every: tuple[Tensor | Buffer, ...] = (*program.inputs, *program.outputs, *program.buffers)
    tensors = {
        each.name: Tensor(
            name=each.name,
            shape=program.views.get(each.name, each.shape),
            dtype=each.dtype,
        )
        for each in every
    }
    kernels = kernels_of([step.kernel for step in products], symbol, tensors)
    rest = without_specialized(program)
    others = _tvm_kernels(rest, target, symbol) if rest.blocks else CudaSource(text="", launches=())
    launches = list(others.launches)
    for kernel in reversed(kernels):
        # Before whatever reads its result: what it reads itself comes before that.
        output = kernel.product.output.tensor
        readers = [place for place, each in enumerate(launches) if output in each.buffers]
        place = min(readers, default=len(launches))
        launches[place:place] = kernel.launches
    return CudaSource(
        text=with_specialized(others.text, kernels),
        launches=tuple(launches),
        workspace=tuple(tensor for kernel in kernels for tensor in kernel.workspace),
    )


def _tvm_kernels(program: Program, target: Target, symbol: str) -> CudaSource:
    """The kernels that TVM's code generator makes."""
    _register_infinity_reducers()
    scheduled = schedule(program, symbol)
    watch = LaunchWatch(symbol)
    try:
        with (
            tvm.transform.PassContext(config=_config(program), instruments=[watch]),
            _source_only(),
        ):
            host = tvm.tirx.build(
                use_guarded_copies(scheduled.mod),
                target=tvm.target.Target(dict(target.tvm), host="llvm"),
                pipeline=register_pipeline(),
            )
    except (RuntimeError, ValueError, TypeError) as error:
        raise BuildError(f"the code generator refused the schedule: {error}") from error
    device = next((module for module in host.imports if module.kind == "cuda"), None)
    if device is None:
        raise BuildError("the schedule has no kernel: no loop of it is bound to a grid")
    text = with_instructions(
        str(device.inspect_source()),
        _warpgroup_multiplications(program),
        guarded_copies=any(isinstance(step, GuardedCopy) for step in program.steps),
    )
    return CudaSource(text=text, launches=watch.launches)


def _warpgroup_multiplications(program: Program) -> set[WarpgroupMultiply]:
    """The distinct warpgroup multiplications that the program's steps put in."""
    return {
        step.instruction
        for step in program.steps
        if isinstance(step, Tensorize) and isinstance(step.instruction, WarpgroupMultiply)
    }


def _config(program: Program) -> dict[str, Any]:
    """Options of TVM's passes."""
    # Unrolling is left to nvcc, as pragmas: TVM's passes take seconds for a large register
    # tile that TVM itself has unrolled. Storage rewriting is off for two reasons. It would
    # put what a thread computes from a reduction's result in the place of that result. The
    # result lies in shared memory, so threads that come later would read the replaced
    # value. And it would let accumulators share storage with operands of another dtype,
    # which accesses by address, such as those of tensor cores, do not follow.
    pipelines = [step for step in program.steps if isinstance(step, Pipeline)]
    # The last iterations of a deep pipeline wait for fewer copies. How many is known only
    # where TVM unrolls these iterations.
    deep = any(step.stages > 2 for step in pipelines)
    config: dict[str, Any] = {
        "tirx.UnrollLoop": {"explicit_unroll": deep},
        "tirx.disable_storage_rewrite": True,
    }
    if any(step.asynchronous for step in pipelines):
        config["tirx.use_async_copy"] = True
    return config


def cuda_built(program: Program, target: Target, symbol: str, compiler: CudaCompiler) -> CudaBuilt:
    """The program compiled for the target's architecture, with its resources.

    Raises IllegalSchedule as `cuda_kernels` does, and BuildError with the compiler's
    text.
    """
    source = cuda_kernels(program, target, symbol)
    cubin = compiler.compile(source.text, target)
    named = {name for launch in source.launches for name in launch.buffers}
    module = CudaModule(
        symbol=symbol,
        inputs=program.inputs,
        outputs=program.outputs,
        workspace=(
            *(
                Tensor(name=buffer.name, shape=buffer.shape, dtype=buffer.dtype)
                for buffer in program.buffers
                if buffer.scope == "global" and buffer.name in named
            ),
            *source.workspace,
        ),
        launches=source.launches,
        cubins=((str(target.tvm["arch"]), cubin.code),),
    )
    module.check()
    return CudaBuilt(module=module, resources=_resources(cubin.kernels, source.launches, target))


def _resources(
    kernels: Sequence[KernelResources], launches: Sequence[Launch], target: Target
) -> Resources | None:
    """The largest demands of any kernel; None where the compiler reported none of a kernel."""
    by_name = {kernel.name: kernel for kernel in kernels}
    if not launches or any(launch.kernel not in by_name for launch in launches):
        return None
    pairs = [(by_name[launch.kernel], launch) for launch in launches]
    shared = [kernel.shared_bytes + launch.shared_bytes for kernel, launch in pairs]
    return Resources(
        registers=max(kernel.registers for kernel, _ in pairs),
        spill_bytes=sum(kernel.spill_store_bytes + kernel.spill_load_bytes for kernel, _ in pairs),
        shared_bytes=max(shared),
        resident_warps=min(
            resident_warps(
                target,
                threads=prod(launch.block),
                registers=kernel.registers,
                shared_bytes=shared_bytes,
            )
            for (kernel, launch), shared_bytes in zip(pairs, shared, strict=True)
        ),
    )


@contextmanager
def _source_only() -> Iterator[None]:
    """Keep TVM from compiling what this thread generates.

    Where TVM's CUDA library loads (a driver and CUDA's runtime suffice), TVM compiles
    each source at once. It does so through other packages, and before the functions of
    `with_instructions` are added. Other threads' sources are compiled as before.
    """
    _override_tvm_compilation()
    before = _SOURCE_ONLY.set(True)
    try:
        yield
    finally:
        _SOURCE_ONLY.reset(before)


@cache
def _override_tvm_compilation() -> None:
    """Replace TVM's compilation callback by one that heeds `_SOURCE_ONLY`."""
    name = "tvm_callback_cuda_compile"  # TVM's, of its tvm/support/nvcc.py
    tvm_compile = tvm_ffi.get_global_func(name)

    def compiled(code: str) -> Any:
        return b"" if _SOURCE_ONLY.get() else tvm_compile(code)

    tvm_ffi.register_global_func(name, compiled, override=True)


@cache
def _register_infinity_reducers() -> None:
    """Register reductions across threads that start from an infinity.

    TVM has maxima and minima that start from finite numbers only, and the maximum of a
    row of -inf is -inf. The registry belongs to the process and outlives the
    interpreter. What it holds is never released, since releasing a Python function that
    late aborts the process.
    """
    register = tvm_ffi.get_global_func("s_tir.schedule.RegisterReducer")
    for combine, start in ((tirx.Max, -float("inf")), (tirx.Min, float("inf"))):
        callbacks = [tvm_ffi.convert(_combiner(combine)), tvm_ffi.convert(_starter(start))]
        for function in callbacks:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(function))
        register(1, *callbacks)


def _combiner(combine: Callable[[Any, Any], Any]) -> _Getter:
    return lambda lhs, rhs: [combine(lhs[0], rhs[0])]


def _starter(start: float) -> _Getter:
    def identity(values: list[Any]) -> list[Any]:
        dtype = str(values[0].ty)
        return [tirx.const(start, dtype) if "float" in dtype else values[0]]

    return identity
