"""What a fleet recorded, and whether it is complete."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from tests.support.archives import unpack
from tuner.db import kernels, trials
from tuner.db.engine import Database
from tuner.export.artifacts import ArtifactStore
from tuner.export.manifest import read_manifest
from tuner.measure.outcome import Trial
from tuner.runtime.loader import Library


def descendants(text: str) -> list[psutil.Process]:
    """Processes below this one whose command line contains the text."""
    matching = []
    for process in psutil.Process().children(recursive=True):
        try:
            if text in " ".join(process.cmdline()):
                matching.append(process)
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return matching


def recorded(database: Database, job_id: str, position: int = 0) -> tuple[Trial, ...]:
    with database.read() as session:
        return trials.of_task(session, job_id, position)


def assert_complete(recorded_trials: tuple[Trial, ...], count: int) -> None:
    assert [trial.number for trial in recorded_trials] == list(range(count))
    configs = [tuple(sorted(trial.config.items())) for trial in recorded_trials]
    assert len(set(configs)) == count


def assert_computes(database: Database, kernel_id: str | None, tmp_path: Path) -> None:
    """The stored artifact is the kernel: called from Python it agrees with NumPy."""
    assert kernel_id is not None
    with database.read() as session:
        kernel = kernels.get(session, kernel_id)
        schedule = kernels.schedule(session, kernel_id)
    store = ArtifactStore(tmp_path / "artifacts")
    library = Library(store.verify(kernel.artifact))
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((48, 32), (32, 40)))
    np.testing.assert_allclose(
        library.function(schedule["symbol"])(a, b), a @ b, rtol=1e-4, atol=1e-4
    )
    assert store.get(schedule["object"])[:4] == b"\x7fELF"
    assert schedule["trace"] and schedule["module"]
    assert_delivered(store, schedule, tmp_path / "unpacked")


def assert_delivered(store: ArtifactStore, schedule: Mapping[str, Any], folder: Path) -> None:
    """The export the service hands out is whole and computes; the generated code can be read."""
    unpack(store.get(schedule["export"]), folder)
    (directory,) = folder.iterdir()
    manifest = read_manifest(directory)
    library = Library(directory / manifest.library)
    (function,) = manifest.functions
    a, b = np.full((48, 32), 2, np.float32), np.full((32, 40), 3, np.float32)
    np.testing.assert_array_equal(
        library.function(function["symbol"])(a, b), np.full((48, 40), 192, np.float32)
    )
    sources = schedule["sources"]
    assert (
        "define" in sources["llvm"]
        and ".text" in sources["asm"]
        and "T.prim_func" in sources["tvmscript"]
    )
