"""Compilation of a workload and a config to object code for a CPU.

Expression to program to scheduled module to machine code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import Schedule
from tvm.target import codegen
from tvm.tirx.build import split_host_device_mods
from tvm.tirx.compilation_pipeline import get_tir_pipeline
from tvm.tirx.transform import BindTarget
from tvm_ffi import structural_walk

from tuner.errors import TunerError
from tuner.lowering.arguments import restore_argument_shapes
from tuner.lowering.passes.amx import use_amx_tiles
from tuner.lowering.passes.dot_products import use_dot_products
from tuner.lowering.passes.half_byte_products import use_half_byte_products
from tuner.lowering.passes.matrix_products import use_matrix_products
from tuner.lowering.passes.nan_conversions import convert_nans_to_zero
from tuner.lowering.passes.pipeline import register_pipeline
from tuner.lowering.passes.ragged_loops import may_reassociate
from tuner.lowering.passes.table_lookups import use_table_lookups
from tuner.lowering.passes.transposition import transpose_in_registers
from tuner.lowering.passes.widening_products import use_widening_products
from tuner.lowering.schedule import StoredSchedule, prepack_of, replay, schedule, stored
from tuner.runtime.prepack import Prepack
from tuner.scratch import temporary_folder
from tuner.spaces.by_target import cpu_space
from tuner.spaces.core.space import Config
from tuner.spaces.cpu.default import default_cpu_program
from tuner.spaces.program.program import Program
from tuner.target.architectures.table import architecture_of, isa_of
from tuner.target.target import Target
from tuner.workload.workload import Workload

# Characters kept of each text: enough to read a kernel's loops, and little beside its
# trace and module.
LONGEST_SOURCE = 200_000
LISTS = ("mattr", "cl-opt")  # options of TVM's target that are several texts
SCALABLE = "+v"  # RISC-V's vector extension
# What puts instructions in the place of marked loops, in this order.
INSTRUCTIONS = (
    use_dot_products,
    use_table_lookups,
    use_half_byte_products,
    use_widening_products,
    use_matrix_products,
    use_amx_tiles,
)


class BuildError(TunerError):
    """The compiler refused a scheduled module. The text is the compiler's own."""

    code = "build_error"


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A compiled kernel with the program and schedule that it was made of."""

    symbol: str  # the TVM entry is `__tvm_ffi_<symbol>`
    object_code: bytes  # relocatable ELF object for the target
    program: Program
    scheduled: Schedule
    generated: tvm.runtime.Module

    @property
    def sources(self) -> Mapping[str, str]:
        """The scheduled module as TVMScript, and the LLVM IR and assembly made of it.

        Each text is cut at LONGEST_SOURCE.
        """
        texts = {
            "tvmscript": str(self.scheduled.mod.script()),
            "llvm": str(self.generated.inspect_source("ll")),
            "asm": str(self.generated.inspect_source("asm")),
        }
        return {name: shortened(text) for name, text in texts.items()}

    @property
    def prepack(self) -> Prepack | None:
        """What `<symbol>_pack`, compiled into the same object, takes and gives.

        None where no constant is packed.
        """
        return prepack_of(self.program, self.symbol)

    @property
    def schedule(self) -> StoredSchedule:
        """The stored form. It is made on request, because only a winner's is needed."""
        return stored(self.program, self.symbol, self.scheduled)


def compile_kernel(
    *, workload: Workload, target: Target, threads: int, config: Config | None, symbol: str
) -> Compiled:
    """Object code of the config's schedule, or of the default schedule without a config.

    Raises IllegalSchedule where the config has no schedule, BuildError where the
    compiler fails.
    """
    space = cpu_space(workload, target, threads)
    program = default_cpu_program(space) if config is None else space.program(config)
    return compile_program(program, target, symbol)


def compile_program(program: Program, target: Target, symbol: str) -> Compiled:
    """Object code of a program. Raises as `compile_kernel` does."""
    scheduled = schedule(program, symbol)
    generated = build(scheduled.mod, target)
    return Compiled(
        symbol=symbol,
        object_code=_object_code(generated),
        program=program,
        scheduled=scheduled,
        generated=generated,
    )


def compile_stored(stored_schedule: StoredSchedule, target: Target) -> bytes:
    """Object code of a schedule from its stored form alone."""
    return compile_module(replay(stored_schedule), target)


def compile_module(mod: tvm.IRModule, target: Target) -> bytes:
    """Object code of a scheduled module. Raises BuildError."""
    return _object_code(build(mod, target))


def shortened(text: str) -> str:
    """The beginning of a text. A last line says where it was cut."""
    if len(text) <= LONGEST_SOURCE:
        return text
    beginning = text[:LONGEST_SOURCE].rpartition("\n")[0]
    return f"{beginning}\n[cut after {len(beginning)} of {len(text)} characters]\n"


def build(mod: tvm.IRModule, target: Target) -> tvm.runtime.Module:
    """A scheduled module compiled for a CPU. Raises BuildError with the compiler's text."""
    isa = isa_of(target)
    if target.declared:
        _check_core(target)
    if not isa.converts_float16 and _converts_float16(mod):
        # The functions that TVM links in their place do not take RISC-V's registers.
        raise BuildError(f"float16 needs instructions that {target.name} lacks; use float32")
    if not isa.nan_survives_conversion:
        mod = convert_nans_to_zero(mod)
    try:
        summed = transpose_in_registers(mod)
        for use in INSTRUCTIONS:
            summed = use(summed, isa)
        lowered = restore_argument_shapes(summed)
        # LLVM's option holds for the whole module.
        options = {**target.tvm, "fast-math-reassoc": True} if may_reassociate(mod) else target.tvm
        try:
            return _generated(lowered, options)
        except tvm.error.InternalError as error:
            if "LLVM module verification failed" not in str(error):
                raise
            # At its highest level LLVM makes invalid code of some chains of conditional
            # loads, which its own verifier refuses.
            return _generated(lowered, {**options, "opt-level": 2})
    except (RuntimeError, ValueError, TypeError) as error:
        raise BuildError(f"the compiler refused the schedule: {error}") from error


def _check_core(target: Target) -> None:
    """Raises BuildError for a declared CPU that LLVM does not know, which it takes for another."""
    mcpu, triple = str(target.tvm["mcpu"]), str(target.tvm["mtriple"])
    if not codegen.llvm_is_valid_cpu(mcpu, triple):
        raise BuildError(f"LLVM has no core {mcpu!r} of {triple}; correct mcpu of {target.name}")
    features = str(target.tvm.get("mattr", ""))
    named = {f"+{feature}" for feature in architecture_of(target).features.values()}
    for feature in sorted({*features.split(",")} - named - {""}):
        if feature.removeprefix("+") not in _features(mcpu, triple, feature):
            raise BuildError(
                f"LLVM has no feature {feature.removeprefix('+')!r} of {triple}; correct features "
                f"of {target.name}"
            )


@cache
def _features(mcpu: str, triple: str, feature: str) -> frozenset[str]:
    """What LLVM's core has with a feature, if that is one."""
    options = {"kind": "llvm", "mcpu": mcpu, "mtriple": triple, "mattr": [feature]}
    return frozenset(map(str, codegen.llvm_get_cpu_features(tvm.target.Target(options))))


def _converts_float16(mod: tvm.IRModule) -> bool:
    """Whether a value of float16 becomes one of another dtype, or the other way."""
    dtypes: set[str] = set()

    def note(cast: tirx.Cast) -> None:
        dtypes.update((str(cast.ty), str(cast.value.ty)))

    for function in mod.functions.values():
        structural_walk(function, (tirx.Cast, note))
    return "float16" in dtypes


def _generated(lowered: tvm.IRModule, target: Mapping[str, Any]) -> tvm.runtime.Module:
    options = dict(target)
    for name in LISTS:
        if name in options:
            options[name] = str(options[name]).split(",")
    if SCALABLE in options.get("mattr", ()):
        return _generated_for_fixed_vectors(lowered, options)
    return tvm.tirx.build(lowered, target=tvm.target.Target(options), pipeline=register_pipeline())


def _generated_for_fixed_vectors(
    lowered: tvm.IRModule, options: Mapping[str, Any]
) -> tvm.runtime.Module:
    """Machine code with RISC-V's vectors, for vectors of the length that a program has.

    Where its target has the vector extension, TVM makes scalable vectors of vectorised
    loops, which it cannot generate code for from calls and conversions of other widths. So
    only LLVM is told of the extension: it takes vectors of a fixed length too.
    """
    features = [feature for feature in options["mattr"] if feature != SCALABLE]
    plain = tvm.target.Target({**options, "mattr": features})
    lower, finish, _ = get_tir_pipeline(register_pipeline())
    host, _ = split_host_device_mods(lower(BindTarget(plain.with_host(plain))(lowered)))
    generate = tvm.get_global_func("target.build.llvm")
    return generate(finish()(host), tvm.target.Target(dict(options)))


def _object_code(generated: tvm.runtime.Module) -> bytes:
    with temporary_folder("tuner-scratch-build-") as scratch:
        path = scratch / "kernel.o"
        generated.write_to_file(str(path))
        return path.read_bytes()


def program_text(program: Program, symbol: str) -> str:
    """The scheduled module as TVMScript, for people. Raises IllegalSchedule."""
    return str(schedule(program, symbol).mod.script())
