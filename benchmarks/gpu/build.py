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

from benchmarks.gpu import carried
from benchmarks.gpu.candidates import built_candidates
from benchmarks.gpu.choose import chosen
from benchmarks.gpu.models import ModelRace, build_model
from benchmarks.gpu.suite import SUITE, Race
from tuner.errors import UsageError
from tuner.lowering.cuda.nvcc import CudaCompiler
from tuner.lowering.cuda.nvrtc import any_compiler
from tuner.spaces.by_target import gpu_space
from tuner.target.detect import parse_target
from tuner.target.target import Target
from tuner.workload.reference import error_bound

MOST_BYTES = 64 << 20  # of the folder
OF_A_KERNEL = 6  # candidates of each kernel of a model, at most
STANDALONE = "run.py"
RUN = """import sys
from pathlib import Path

from carried.command import command

sys.exit(command(Path(__file__).resolve().parent))
"""


def build(
    folder: Path,
    *,
    architectures: Sequence[str],
    candidates: int,
    cache: Path,
    only: Sequence[str],
    said: Callable[[str], None],
    suite: Sequence[Race | ModelRace] = SUITE,
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
    targets = [parse_target(f"cuda:{arch}") for arch in architectures]
    races = []
    for race in suite:
        if not only or race.name in only:
            if isinstance(race, Race):
                races.append(_race(race, folder, targets, candidates, compiler, said))
            else:
                few = min(candidates, OF_A_KERNEL)
                races.append(build_model(race, folder, targets, few, compiler, said))
    document = {"schema": 1, "compiler": compiler.version, "races": races}
    (folder / "suite.json").write_text(json.dumps(document, indent=1))
    carry(folder)
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if total > MOST_BYTES:
        raise UsageError(
            f"{folder} has {total >> 20} MiB; at most {MOST_BYTES >> 20} can be carried: build "
            f"fewer --candidates"
        )
    return total


def carry(folder: Path) -> None:
    """Copy the second half of the benchmark into the folder."""
    (folder / STANDALONE).write_text(RUN)
    own = Path(carried.__file__).parent
    shutil.copytree(own, folder / "carried", ignore=shutil.ignore_patterns("__pycache__"))


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
        place = folder / race.name / arch
        modules = [
            {**candidate, "file": str((place / candidate["file"]).relative_to(folder))}
            for candidate in built_candidates(
                space, chosen(space, candidates, rng), place, compiler
            )
        ]
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
