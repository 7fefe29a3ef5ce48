"""Tune the workload of each race with the product, on a machine with a GPU.

The promoted kernel joins the candidates of the folder.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tuner import tune
from tuner.db import kernels
from tuner.db.engine import open_database
from tuner.errors import TunerError
from tuner.export.artifacts import ArtifactStore
from tuner.settings import load_settings
from tuner.tuning import TrialRecorded
from tuner.workers.jobs.progress import Progress


def tune_races(
    folder: Path, *, arch: str, trials: int, only: Sequence[str], said: Callable[[str], None]
) -> None:
    """Tune each race of the folder, or those of `only`, for this machine's GPU.

    The promoted kernels are added to the suite and replace those of an earlier tuning.
    A race whose tuning fails gets the reason instead; the others go on.
    """
    path = folder / "suite.json"
    suite = json.loads(path.read_text())
    for race in suite["races"]:
        if only and race["name"] not in only:
            continue
        race["built"][arch] = [
            entry for entry in race["built"].get(arch, []) if "tuned" not in entry
        ]
        race.pop("not_tuned", None)
        said(f"tuning {race['spec']}: {trials} trials")
        try:
            candidate = _tuned(folder, race, arch, trials)
        except TunerError as error:
            race["not_tuned"] = " ".join(str(error).split())
            said(f"  not tuned: {error}")
        else:
            race["built"][arch].append(candidate)
            said("  {trials} trials in {seconds:.0f} s".format(**candidate["tuned"]))
        path.write_text(json.dumps(suite, indent=1))


def _tuned(folder: Path, race: dict[str, Any], arch: str, trials: int) -> dict[str, Any]:
    """The promoted kernel's module as a candidate of the folder. Raises TunerError."""
    recorded = 0

    def count(progress: Progress) -> None:
        nonlocal recorded
        recorded += isinstance(progress, TrialRecorded)

    settings = load_settings(
        {"db": f"sqlite:///{(folder / 'tuned.db').resolve()}"}, given_as="setting {}"
    ).values
    began = time.monotonic()
    kernel = tune(race["spec"], target="cuda", trials=trials, db=settings.db, observer=count)
    seconds = time.monotonic() - began
    database = open_database(settings.db)
    try:
        with database.read() as session:
            schedule = kernels.schedule(session, kernel.id)
    finally:
        database.close()
    module = folder / race["name"] / arch / "tuned.cuda"
    module.parent.mkdir(parents=True, exist_ok=True)
    module.write_bytes(ArtifactStore(settings.artifacts).get(schedule["object"]))
    plain = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in kernel.config.items()
    }
    return {
        "file": str(module.relative_to(folder)),
        "config": plain,
        "registers": None,
        "tuned": {"trials": recorded, "seconds": seconds, "promoted_s": kernel.median_s},
    }
