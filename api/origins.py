"""Where a kernel's schedule comes from: a search, a neighbour, or the default."""

from __future__ import annotations

from typing import Literal

from tuner.db import jobs
from tuner.db.engine import Session
from tuner.db.kernels import Kernel


def source_of(session: Session, kernel: Kernel) -> Literal["exact", "neighbour", "default"]:
    """The source of a kernel's schedule: a search, or a job that prepared it for a lookup."""
    if kernel.job is None or jobs.kind_of(session, kernel.job) != jobs.PREPARE:
        return "exact"
    estimated = not jobs.get(session, kernel.job).settings
    return "neighbour" if kernel.config and not estimated else "default"
