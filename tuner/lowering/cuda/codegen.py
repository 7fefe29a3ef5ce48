"""From a program to CUDA source with its launches, and on to a module of machine code.
Neither needs a GPU.

Source comes from TVM's code generator, the cubin from `tuner.lowering.cuda.nvcc`.
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
from tuner.lowering.cuda.warpgroup_source import with_instructions
from tuner.lowering.passes.guarded_copies import guard_copies
from tuner.lowering.schedule import schedule
from tuner.measure.gpu.resources import Resources
from tuner.runtime.cuda_module import CudaModule, Launch
from tuner.spaces.program.program import Pipeline, Program
from tuner.target.occupancy import resident_warps
from tuner.target.target import Target
from tuner.workload.expression import Tensor

_Getter = Callable[..., list[Any]]  # of TVM's expressions, whose class has no public name
_SOURCE_ALONE: ContextVar[bool] = ContextVar("source_alone", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaSource:
    """Kernels as CUDA C++, and how they are launched one after another."""

    text: str
    launches: tuple[Launch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaBuilt:
    """A compiled program, and what it takes of the device; None where the compiler did not say."""

    module: CudaModule
    resources: Resources | None


def cuda_kernels(program: Program, target: Target, symbol: str) -> CudaSource:
    """The program's kernels.

    Raises IllegalSchedule where a step cannot be applied, BuildError where TVM's code
    generator refuses the schedule.
    """
    _know_infinities()
    scheduled = schedule(program, symbol)
    watch = LaunchWatch(symbol)
    try:
        with (
            tvm.transform.PassContext(config=_config(program), instruments=[watch]),
            _source_alone(),
        ):
            host = tvm.tirx.build(
                guard_copies(scheduled.mod), target=tvm.target.Target(dict(target.tvm), host="llvm")
            )
    except (RuntimeError, ValueError, TypeError) as error:
        raise BuildError(f"the code generator refused the schedule: {error}") from error
    device = next((module for module in host.imports if module.kind == "cuda"), None)
    if device is None:
        raise BuildError("the schedule has no kernel: no loop of it is bound to a grid")
    return CudaSource(text=with_instructions(str(device.inspect_source())), launches=watch.launches)


def _config(program: Program) -> dict[str, Any]:
    """Options of TVM's passes."""
    # Loops to be unrolled are left to nvcc, as pragmas: unrolled by TVM, its passes
    # take seconds for a large register tile. Storage is not rewritten, for two reasons.
    # What a thread computes from a reduction's result would be laid over that result,
    # which then lies in shared memory: all threads would replace it, and those that
    # come later compute from what they find. And sums would be laid over operands of
    # another dtype, which accesses by address, as tensor cores have them, do not
    # follow.
    pipelines = [step for step in program.steps if isinstance(step, Pipeline)]
    # How many copies the last turns of a deep pipeline wait for is known only where
    # they are unrolled, which TVM has to do.
    deep = any(step.stages > 2 for step in pipelines)
    config: dict[str, Any] = {
        "tirx.UnrollLoop": {"explicit_unroll": deep},
        "tirx.disable_storage_rewrite": True,
    }
    if any(step.asynchronous for step in pipelines):
        config["tirx.use_async_copy"] = True
    return config


def cuda_source(program: Program, target: Target, symbol: str) -> str:
    """The text of `cuda_kernels`."""
    return cuda_kernels(program, target, symbol).text


def cuda_module(
    program: Program, target: Target, symbol: str, compiler: CudaCompiler
) -> CudaModule:
    """The module of `cuda_built`."""
    return cuda_built(program, target, symbol, compiler).module


def cuda_built(program: Program, target: Target, symbol: str, compiler: CudaCompiler) -> CudaBuilt:
    """The program compiled for the target's architecture, with all that launching it takes.

    Raises IllegalSchedule, and BuildError with the compiler's text.
    """
    source = cuda_kernels(program, target, symbol)
    cubin = compiler.compile(source.text, target)
    named = {name for launch in source.launches for name in launch.arguments}
    module = CudaModule(
        symbol=symbol,
        inputs=program.inputs,
        outputs=program.outputs,
        workspace=tuple(
            Tensor(name=one.name, shape=one.shape, dtype=one.dtype)
            for one in program.buffers
            if one.scope == "global" and one.name in named
        ),
        launches=source.launches,
        cubins=((str(target.tvm["arch"]), cubin.code),),
    )
    module.check()
    return CudaBuilt(module=module, resources=_resources(cubin.kernels, source.launches, target))


def _resources(
    kernels: Sequence[KernelResources], launches: Sequence[Launch], target: Target
) -> Resources | None:
    by_name = {one.name: one for one in kernels}
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
                target, threads=prod(launch.block), registers=kernel.registers, shared_bytes=taken
            )
            for (kernel, launch), taken in zip(pairs, shared, strict=True)
        ),
    )


@contextmanager
def _source_alone() -> Iterator[None]:
    """Within it, TVM compiles nothing that this thread generates.

    Where its library for CUDA loads (a driver and CUDA's runtime suffice), TVM compiles
    each source at once, through other packages and without the instructions that are
    still to be added. What others in this process generate is compiled as before.
    """
    _leave_compiling()
    before = _SOURCE_ALONE.set(True)
    try:
        yield
    finally:
        _SOURCE_ALONE.reset(before)


@cache
def _leave_compiling() -> None:
    name = "tvm_callback_cuda_compile"  # TVM's, of its tvm/support/nvcc.py
    theirs = tvm_ffi.get_global_func(name)

    def compiled(code: str) -> Any:
        return b"" if _SOURCE_ALONE.get() else theirs(code)

    tvm_ffi.register_global_func(name, compiled, override=True)


@cache
def _know_infinities() -> None:
    """Tells TVM's reductions across threads of maxima and minima that start from the
    infinities; it knows finite starts only.

    Of a row of -inf the maximum is -inf, not the lowest finite number. The registry is
    TVM's, one a process, and outlives the interpreter: what it holds is never released,
    because releasing a Python function by then aborts the process.
    """
    register = tvm_ffi.get_global_func("s_tir.schedule.RegisterReducer")
    for combine, start in ((tirx.Max, -float("inf")), (tirx.Min, float("inf"))):
        held = [tvm_ffi.convert(_combiner(combine)), tvm_ffi.convert(_starter(start))]
        for function in held:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(function))
        register(1, *held)


def _combiner(combine: Callable[[Any, Any], Any]) -> _Getter:
    return lambda lhs, rhs: [combine(lhs[0], rhs[0])]


def _starter(start: float) -> _Getter:
    def identity(values: list[Any]) -> list[Any]:
        dtype = str(values[0].ty)
        return [tirx.const(start, dtype) if "float" in dtype else values[0]]

    return identity
