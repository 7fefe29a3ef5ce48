"""Compile configs of a space into a folder: what does not fit or spills is left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tuner.errors import IllegalSchedule
from tuner.lowering.compiler import BuildError
from tuner.lowering.cuda.codegen import cuda_built, cuda_kernels
from tuner.lowering.cuda.nvcc import CudaCompiler
from tuner.spaces.core.space import Config
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.cuda.facts import KernelFacts

# Bytes of a thread: a register or two around a call of a slow path, which costs nothing.
MOST_SPILLED = 32


def built_candidates(
    space: TargetSpace[KernelFacts],
    configs: Sequence[Config],
    folder: Path,
    compiler: CudaCompiler,
) -> Iterator[dict[str, Any]]:
    """What the suite says of each candidate: its file in the folder, config, registers."""
    for number, config in enumerate(configs):
        try:
            program = space.program(config)
            text = cuda_kernels(program, space.target, "kernel").text
            cubin = compiler.compile(text, space.target)
            if any(kernel.spill_store_bytes > MOST_SPILLED for kernel in cubin.kernels):
                continue
            module = cuda_built(program, space.target, "kernel", compiler).module
        except (IllegalSchedule, BuildError):
            continue
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.cuda").write_bytes(module.pack())
        plain = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in config.items()
        }
        registers = max(kernel.registers for kernel in cubin.kernels)
        yield {"file": f"{number}.cuda", "config": plain, "registers": registers}
