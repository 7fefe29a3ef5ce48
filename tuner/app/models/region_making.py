"""How the process that makes a region's library does so, once it is the one that does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tuner.app.models.region_library import region_library
from tuner.app.models.region_progress import RegionProgress
from tuner.models.graph_archive import unpacked
from tuner.settings import load_settings
from tuner.workers.jobs.orchestrator import Interruption


def library_of(
    content: bytes,
    options: Mapping[str, Any],
    report: Callable[[str], object],
    is_over: Callable[[], bool],
) -> bytes:
    """The library of a packed graph, by settings as a request has them. `report` is called with
    how far it is; where `is_over`, the search is cancelled. Raises what `region_library` does."""
    return region_library(
        unpacked(content),
        load_settings(options, given_as="option {}").values,
        observer=RegionProgress(report).observe,
        interrupt=lambda: Interruption.CANCEL if is_over() else None,
    )
