"""Sampled kernels of every operator, and of every algorithm under fast numerics, on a
GPU: each element checked by the runner.

Kernels are built on all cores first; the GPU then runs one after another.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.support.cuda_bf16x3 import SPECS as SPLIT
from tests.support.cuda_serial import by_operator
from tests.support.cuda_winograd import SPECS as WINOGRAD
from tests.support.gpu_machine import needs_gpu
from tuner.errors import IllegalSchedule
from tuner.measure.assignment import Request
from tuner.measure.gpu.runner import GpuRunner
from tuner.measure.outcome import Timed
from tuner.measure.timing import TimingPlan
from tuner.target.detect import parse_target
from tuner.workers.backends.cuda_compiler import CudaCandidateCompiler
from tuner.workers.fleet.messages import Problem
from tuner.workers.fleet.shipping import place
from tuner.workload.spec import parse_spec

POINTS = 2  # of each sketch of a spec
MOST_SKETCHES = 8
BRIEF = TimingPlan(budget_s=0.01, min_repeat_s=0.0, min_samples=1, max_samples=3, warmup_s=0.0)
REWRITTEN: Mapping[str, Sequence[str]] = {
    "winograd": [f"{spec},numerics=fast" for spec in WINOGRAD],
    "bf16x3": [f"{spec},numerics=fast" for spec in (*SPLIT, "attention:B=1,H=2,S=64,D=32")],
}
SPECS: Mapping[str, Sequence[str]] = by_operator() | dict(REWRITTEN)


Kernel = tuple[str, bytes, str]  # what it is called, its library, its symbol


def made_of(spec: str, cubins: str) -> list[Kernel]:
    """The default schedule and random points of each sketch, built for this machine's GPU."""
    compiler = CudaCandidateCompiler(
        Problem(workload=parse_spec(spec), target=parse_target("cuda"), threads=1), Path(cubins)
    )
    space = compiler.space.space
    drawn = space.sample(np.random.default_rng(zlib.crc32(spec.encode())), 2000)
    chosen = [
        point
        for row in range(min(len(space.combinations), MOST_SKETCHES))
        for point in drawn[drawn[:, 0] == row][:POINTS]
    ]
    kernels: list[Kernel] = []
    for config in (None, *map(space.config, chosen)):
        try:
            made = compiler.compile(config)
        except IllegalSchedule:
            continue
        kernels.append((str(config or "default"), made.library, made.symbol))
    return kernels


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[Kernel]]:
    specs = [spec for own in SPECS.values() for spec in own]
    folder = str(tmp_path_factory.mktemp("cubins"))
    with ProcessPoolExecutor(
        os.cpu_count(), mp_context=multiprocessing.get_context("spawn")
    ) as pool:
        return dict(zip(specs, pool.map(made_of, specs, [folder] * len(specs)), strict=True))


@needs_gpu
@pytest.mark.timeout(600)  # the first one builds all
@pytest.mark.parametrize("what", SPECS)
def test_kernels_are_right(what: str, kernels: Mapping[str, list[Kernel]], tmp_path: Path) -> None:
    wrong: list[str] = []
    with GpuRunner() as runner:
        for spec in SPECS[what]:
            runner.prepare(parse_spec(spec))
            for config, library, symbol in kernels[spec]:
                path = place(tmp_path, f"{hashlib.sha256(library).hexdigest()}.so", library)
                outcome = runner.measure(
                    Request(name=spec, library=str(path), symbol=symbol, timeout_s=30.0, plan=BRIEF)
                )
                if not isinstance(outcome, Timed):
                    wrong.append(f"{spec} {config}: {outcome}")
    assert not wrong, "\n".join(wrong)
