"""From a workload and a config to object code: expression → program → scheduled module
→ machine code."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir import Schedule

from tuner.errors import TunerError
from tuner.lowering.arguments import state_arguments
from tuner.lowering.passes.amx import use_tile_registers
from tuner.lowering.passes.dots import take_dots
from tuner.lowering.passes.pipeline import know_pipeline
from tuner.lowering.passes.transposition import transpose_in_registers
from tuner.lowering.schedule import StoredSchedule, prepack_of, replay, schedule, stored
from tuner.runtime.prepack import Prepack
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Config
from tuner.spaces.default_schedule import default_program
from tuner.spaces.program.program import Program
from tuner.target.architectures.table import isa_of
from tuner.target.target import Target
from tuner.workload.workload import Workload

# characters kept of each text: enough to read a kernel's loops, little beside its trace
# and module
LONGEST_SOURCE = 200_000


class BuildError(TunerError):
    """The compiler refused a scheduled module; the text is the compiler's own."""

    code = "build_error"


@dataclass(frozen=True, kw_only=True)
class Compiled:
    symbol: str  # the TVM entry is `__tvm_ffi_<symbol>`
    object_code: bytes  # relocatable ELF object for the target
    program: Program
    scheduled: Schedule
    generated: tvm.runtime.Module

    @property
    def sources(self) -> Mapping[str, str]:
        """The scheduled module as TVMScript, the LLVM IR and the assembly made of it,
        each cut at LONGEST_SOURCE."""
        texts = {
            "tvmscript": str(self.scheduled.mod.script()),
            "llvm": str(self.generated.inspect_source("ll")),
            "asm": str(self.generated.inspect_source("asm")),
        }
        return {name: shortened(text) for name, text in texts.items()}

    @property
    def prepack(self) -> Prepack | None:
        """What `<symbol>_pack`, compiled into the same object, takes and gives; None
        where no constant is packed ahead."""
        return prepack_of(self.program, self.symbol)

    @property
    def schedule(self) -> StoredSchedule:
        """The stored form; made when asked for, because only a winner's is."""
        return stored(self.program, self.symbol, self.scheduled)


def compile_kernel(
    *, workload: Workload, target: Target, threads: int, config: Config | None, symbol: str
) -> Compiled:
    """Object code of the config's schedule, of the default schedule where there is no config.

    Raises IllegalSchedule where the config has no schedule, BuildError where the compiler fails.
    """
    program = (
        default_program(workload)
        if config is None
        else space_of(workload, target, threads).program(config)
    )
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
    return _object_code(build(mod, target))


def shortened(text: str) -> str:
    """The beginning of a text, with a last line that says so where it was cut."""
    if len(text) <= LONGEST_SOURCE:
        return text
    kept = text[:LONGEST_SOURCE].rpartition("\n")[0]
    return f"{kept}\n[cut after {len(kept)} of {len(text)} characters]\n"


def build(mod: tvm.IRModule, target: Target) -> tvm.runtime.Module:
    """A scheduled module compiled for a CPU. Raises BuildError with the compiler's text."""
    isa = isa_of(target)
    try:
        lowered = state_arguments(
            use_tile_registers(take_dots(transpose_in_registers(mod), isa), isa)
        )
        try:
            return _generated(lowered, target.tvm)
        except tvm.error.InternalError as error:
            if "LLVM module verification failed" not in str(error):
                raise
            # LLVM's own verifier refuses what its highest level makes of some chains of
            # conditional loads.
            return _generated(lowered, {**target.tvm, "opt-level": 2})
    except (RuntimeError, ValueError, TypeError) as error:
        raise BuildError(f"the compiler refused the schedule: {error}") from error


def _generated(lowered: tvm.IRModule, target: Mapping[str, Any]) -> tvm.runtime.Module:
    return tvm.tirx.build(lowered, target=tvm.target.Target(dict(target)), pipeline=know_pipeline())


def _object_code(generated: tvm.runtime.Module) -> bytes:
    with tempfile.TemporaryDirectory(prefix="tuner-build-") as scratch:
        path = Path(scratch) / "kernel.o"
        generated.write_to_file(str(path))
        return path.read_bytes()


def program_text(program: Program, symbol: str) -> str:
    """The scheduled module as TVMScript, for people."""
    return str(schedule(program, symbol).mod.script())
