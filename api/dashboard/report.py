"""A job as one self-contained HTML file, without scripts or other resources.

It is meant for people without access to the service, for tickets and for archives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from tuner.api.auth import OPERATOR
from tuner.api.dashboard import history, loops
from tuner.api.dashboard.assets import STYLESHEETS
from tuner.api.dashboard.charts import curve as curves
from tuner.api.dashboard.charts import plots
from tuner.api.dashboard.job_view import NEXT, JobView, curve_of, load
from tuner.api.dashboard.knob_view import static_parallel
from tuner.api.dashboard.pages import make_dashboard
from tuner.api.dashboard.prediction_plot import prediction_plot
from tuner.api.dashboard.views.kernel import race
from tuner.db import jobs, kernels, targets, trials
from tuner.db.engine import Session
from tuner.version import __version__ as VERSION

FASTEST = 20  # trials listed with their configs
FAILURES = 20  # groups
KNOBS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """One workload's part of the report."""

    view: JobView
    parts: Mapping[str, Any]


def report(session: Session, job_id: str) -> str:
    """The page as HTML text. Raises NotFound for an unknown job."""
    job = jobs.get(session, job_id)
    tasks = [
        task_report(session, load(session, job_id, OPERATOR, position))
        for position in range(len(job.tasks))
    ]
    dashboard = make_dashboard()
    context = {
        "job": job,
        "title": tasks[0].view.label if tasks else "a model",
        "target": targets.get(session, job.target),
        "tasks": tasks,
        "style": Markup(dashboard.style(*STYLESHEETS)),
        "svg": Markup,
        "product_version": VERSION,
        "made_at": datetime.now(UTC),
        "expected_trials": NEXT,
    }
    return dashboard.environment.get_template("report.html").render(context)


def task_report(session: Session, view: JobView) -> TaskReport:
    drawn, expected = curve_of(session, view)
    analysis = history.analysis(session, view.job.id, view.position)
    entries = race(view.kernel) if view.kernel else []
    schedule = kernels.schedule(session, view.kernel.id) if view.kernel else {}
    parts = {
        "curve": drawn,
        "curve_svg": curves.draw(drawn),
        "words": curves.summary(drawn),
        "records": curves.records_table(drawn, view.default_s),
        "expected": expected,
        "fastest": analysis.trials[:FASTEST],
        "knobs": [
            (knob, plots.bar(knob.share), min(knob.groups, key=lambda group: group.best_s))
            for knob in analysis.knobs[:KNOBS]
        ],
        "parallel_svg": static_parallel(analysis, analysis.trials),
        "predictions": prediction_plot(analysis.predictions),
        "correlation_svg": plots.correlations(analysis.correlations)
        if analysis.correlations
        else None,
        "counts": trials.failure_counts(session, view.job.id, view.position),
        "entries": entries,
        "intervals_svg": plots.intervals(entries) if entries else None,
        "before": loops.before(schedule, view.workload),
        "after": loops.after(schedule, view.workload, view.target, view.kernel)
        if view.kernel
        else None,
        "trace": loops.trace_text(schedule),
    }
    groups = (
        trials.failure_groups(session, view.job.id, limit=FAILURES) if view.position == 0 else ()
    )
    return TaskReport(view=view, parts=parts | {"groups": groups})
