"""The curve that `tuner show --plot` draws in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from db.engine import Session
    from db.jobs import Job


def curve_lines(session: Session, job: Job, width: int) -> list[str]:
    """Best so far of each of the job's workloads as text, at most `width` columns."""
    from api.auth import OPERATOR
    from api.dashboard.charts.terminal import plot
    from api.dashboard.job_view import curve_of, load

    lines: list[str] = []
    for position in range(len(job.tasks)):
        view = load(session, job.id, OPERATOR, position)
        curve, _ = curve_of(session, view)
        lines += ["", view.label, *plot(curve, width=width)]
    return lines
