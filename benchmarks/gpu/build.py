"""Compile candidates for each race and architecture into one folder.

This is the first half of the benchmark. It runs on any machine with nvcc.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.choose import chosen
from benchmarks.gpu.suite import SUITE, Race
from tuner.errors import IllegalSchedule, UsageError
from tuner.lowering.compiler import BuildError
from tuner.lowering.cuda.codegen import cuda_kernels, cuda_module
from tuner.lowering.cuda.nvcc import CudaCompiler
from tuner.lowering.cuda.nvrtc import any_compiler
from tuner.spaces.by_target import gpu_space
from tuner.target.detect import parse_target
from tuner.target.target import Target
from tuner.workload.reference import error_bound

MOST_BYTES = 64 << 20  # of the folder
STANDALONE = "run.py"
# Bytes of a thread: a register or two around a call of a slow path, which costs nothing.
MOST_SPILLED = 32


def build(
    folder: Path,
    *,
    architectures: Sequence[str],
    candidates: int,
    cache: Path,
    only: Sequence[str],
    said: Callable[[str], None],
    suite: Sequence[Race] = SUITE,
) -> int:
    """Write the folder anew and return its size in bytes.

    Raises UsageError for an unknown race, a folder of something else, or one too large.
    """
    names = [race.name for race in suite]
    unknown = sorted(set(only) - set(names))
    if unknown:
        raise UsageError(f"there is no race {unknown[0]!r}; there are {', '.join(names)}")
    if folder.exists() and any(folder.iterdir()) and not (folder / "suite.json").is_file():
        raise UsageError(f"{folder} holds something else; give an empty or new folder")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    compiler = any_compiler(cache)
    races = [
        _race(
            race,
            folder,
            [parse_target(f"cuda:{arch}") for arch in architectures],
            candidates,
            compiler,
            said,
        )
        for race in suite
        if not only or race.name in only
    ]
    document = {"schema": 1, "compiler": compiler.version, "races": races}
    (folder / "suite.json").write_text(json.dumps(document, indent=1))
    (folder / STANDALONE).write_text(Path(__file__).with_name("standalone.py").read_text())
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if total > MOST_BYTES:
        raise UsageError(
            f"{folder} has {total >> 20} MiB; at most {MOST_BYTES >> 20} can be carried: build "
            f"fewer --candidates"
        )
    return total


def _race(
    race: Race,
    folder: Path,
    targets: Sequence[Target],
    candidates: int,
    compiler: CudaCompiler,
    said: Callable[[str], None],
) -> dict[str, Any]:
    workload = race.workload
    built: dict[str, list[dict[str, Any]]] = {}
    for target in targets:
        arch = str(target.tvm["arch"])
        if arch not in race.bars:
            built[arch] = []
            continue
        space = gpu_space(workload, target)
        rng = np.random.default_rng([zlib.crc32(race.name.encode()), zlib.crc32(arch.encode())])
        modules = []
        for number, config in enumerate(chosen(space, candidates, rng)):
            path = folder / race.name / arch / f"{number}.cuda"
            try:
                program = space.program(config)
                cubin = compiler.compile(cuda_kernels(program, target, "kernel").text, target)
                if any(kernel.spill_store_bytes > MOST_SPILLED for kernel in cubin.kernels):
                    continue
                module = cuda_module(program, target, "kernel", compiler)
            except (IllegalSchedule, BuildError):
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(module.pack())
            registers = max(kernel.registers for kernel in cubin.kernels)
            plain = {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in config.items()
            }
            modules.append(
                {"file": str(path.relative_to(folder)), "config": plain, "registers": registers}
            )
        built[arch] = modules
        said(f"{race.name} for {arch}: {len(modules)} candidates")
    bound = error_bound(workload.expression, workload.numerics)
    return {
        **asdict(race),
        "bound": bound,
        "flops": workload.expression.flops,
        "bytes": workload.expression.nbytes,
        "built": built,
    }
