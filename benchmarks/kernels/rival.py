"""MetaSchedule as a contender: tuned in a process of its own, linked like our kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tuner.measure.race import Contender
from tuner.runtime.link import Function, link
from tuner.target.target import Target
from tuner.workload.workload import Workload

METASCHEDULE = "metaschedule"
TIMEOUT_S = 1800.0  # of its tuning of one workload
CALL_TIMEOUT_S = 120.0  # of its kernel in a round of the race
ABSENT_MODULES = ("torch",)


@dataclass(frozen=True, kw_only=True)
class Rival:
    """What MetaSchedule came to on one workload."""

    contender: Contender | None
    seconds: float | None  # wall time of its tuning, loading included
    why: str | None  # why there is no contender


def tune_rival(
    workload: Workload, trials: int, threads: int, target: Target, folder: Path
) -> Rival:
    """Tune a workload with MetaSchedule. `folder` keeps its kernel and report."""
    folder.mkdir(parents=True, exist_ok=True)
    if workload.op is None:
        (folder / "program.txt").write_text(workload.notation or "")
    source = (
        [workload.spec] if workload.op is not None else ["--notation", str(folder / "program.txt")]
    )
    command = [sys.executable, "-m", "benchmarks.kernels.metaschedule", *source]
    command += ["--trials", str(trials), "--threads", str(threads), "-o", str(folder)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            env=_environment(folder / "hidden"),
        )
    except subprocess.TimeoutExpired:
        return Rival(contender=None, seconds=None, why=f"not done within {TIMEOUT_S:g} s")
    (folder / "log.txt").write_text(done.stdout + done.stderr)
    if done.returncode != 0:
        return Rival(
            contender=None,
            seconds=None,
            why=(done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1],
        )
    report = json.loads((folder / "report.json").read_text())
    if not report["found"]:
        return Rival(
            contender=None, seconds=float(report["elapsed_s"]), why="it found no valid schedule"
        )
    return Rival(
        contender=_linked(workload, threads, target, folder),
        seconds=float(report["elapsed_s"]),
        why=None,
    )


def _linked(workload: Workload, threads: int, target: Target, folder: Path) -> Contender:
    code = (folder / "kernel.o").read_bytes()
    function = Function.of(workload.expression, METASCHEDULE, code, isa=target.isa, threads=threads)
    library = folder / "libmetaschedule.so"
    library.write_bytes(link(METASCHEDULE, [function]))
    return Contender(
        name=METASCHEDULE, library=str(library), symbol=METASCHEDULE, timeout_s=CALL_TIMEOUT_S
    )


def _environment(hidden: Path) -> dict[str, str]:
    """The environment that is best for the rival: without PyTorch.

    TVM loads PyTorch wherever it is installed, which doubles the start of each process.
    """
    hidden.mkdir(exist_ok=True)
    for name in ABSENT_MODULES:
        (hidden / f"{name}.py").write_text("raise ImportError('kept out of this process')\n")
    path = os.pathsep.join(filter(None, (str(hidden), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}
