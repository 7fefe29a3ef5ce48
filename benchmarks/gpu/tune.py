"""Tune the workload of each race with the product, on a machine with a GPU.

The promoted kernel joins the candidates of the folder.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tuner import tune
from tuner.db import kernels, lanes
from tuner.db.engine import open_database
from tuner.db.lanes import LaneSpan
from tuner.errors import TunerError
from tuner.export.artifacts import ArtifactStore
from tuner.settings import load_settings
from tuner.tuning import TrialRecorded
from tuner.workers.jobs.progress import Progress

MOST_SPANS = 100_000  # of one tuning


def tune_races(
    folder: Path, *, arch: str, trials: int, only: Sequence[str], said: Callable[[str], None]
) -> None:
    """Tune each race of an operator, or those of `only`, for this machine's GPU.

    The promoted kernels are added to the suite and replace those of an earlier tuning.
    A race whose tuning fails gets the reason instead; the others go on.
    """
    path = folder / "suite.json"
    suite = json.loads(path.read_text())
    for race in suite["races"]:
        if (only and race["name"] not in only) or race["kind"] == "network":
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
            tuned = candidate["tuned"]
            busy = "" if tuned["busy"] is None else f", the GPU busy {tuned['busy']:.0%} of them"
            said(f"  {tuned['trials']} trials in {tuned['seconds']:.0f} s{busy}")
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
    start, began = datetime.now(UTC), time.monotonic()
    written = race.get("notation")
    kernel = tune(
        written or race["spec"],
        shapes=race["sizes"] if written else None,
        numerics=race["numerics"] if written else "strict",
        target="cuda",
        trials=trials,
        db=settings.db,
        observer=count,
    )
    seconds = time.monotonic() - began
    database = open_database(settings.db)
    try:
        with database.read() as session:
            schedule = kernels.schedule(session, kernel.id)
            spans = lanes.timeline(session, since=start, until=datetime.now(UTC), limit=MOST_SPANS)
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
        "tuned": {
            "trials": recorded,
            "seconds": seconds,
            "promoted_s": kernel.median_s,
            "busy": busy_share(spans),
        },
    }


def busy_share(spans: Sequence[LaneSpan]) -> float | None:
    """The share of the trials' time, first to last, that the device checked or timed one.

    None without trials. Builders' spans and what a promotion measures count for nothing.
    """
    worked = [span for span in spans if span.kind in ("check", "time") and span.trial is not None]
    if not worked:
        return None
    first, last = min(span.started_at for span in worked), max(span.ended_at for span in worked)
    busy_s = sum((span.ended_at - span.started_at).total_seconds() for span in worked)
    return busy_s / max((last - first).total_seconds(), 1e-9)
