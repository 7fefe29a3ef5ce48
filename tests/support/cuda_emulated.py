"""CUDA kernels run thread by thread on the doubles of a device."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tuner.measure.assignment import Request, Verification
from tuner.measure.gpu.runner import GpuRunner
from tuner.measure.outcome import Timed
from tuner.measure.timing import TimingPlan
from tuner.spaces.core.space import Config
from tuner.workers.backends.cuda_compiler import CudaCandidateCompiler
from tuner.workers.fleet.shipping import place

BRIEF = TimingPlan(budget_s=0.0, min_repeat_s=0.0, min_samples=1, max_samples=1, warmup_s=0.0)


def check(
    runner: GpuRunner,
    candidates: CudaCandidateCompiler,
    config: Config | None,
    folder: Path,
    verification: Verification = "screening",
) -> None:
    """Compiles the config and holds what it computes against the reference."""
    made = candidates.compile(config)
    # Never written twice: it is mapped.
    path = place(folder, f"{hashlib.sha256(made.library).hexdigest()}.so", made.library)
    outcome = runner.measure(
        Request(
            name="k",
            library=str(path),
            symbol=made.symbol,
            timeout_s=120.0,
            plan=BRIEF,
            verification=verification,
        )
    )
    assert isinstance(outcome, Timed), f"{config}: {outcome}"
