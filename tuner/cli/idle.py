"""What `tuner tune` measures once a job has ended, where its objective asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuner.cli.invocation import Invocation
from tuner.measure.objective import Objective, goal_of

if TYPE_CHECKING:
    from tuner.api.schemas import JobAnswer


def measure_figures(invocation: Invocation, job: JobAnswer, also: Sequence[Objective] = ()) -> None:
    """Measures throughput and energy of a job's kernels on this machine, and stores them.

    As far as they are among the job's objectives and `also`. Raises NoEnergyCounters and
    RaceError.
    """
    asked = (*goal_of(job.objective).objectives, *also)
    objectives = [each for each in dict.fromkeys(asked) if each.on_idle_machine]
    if not objectives:
        return
    from tuner.app.races.idle import measure_idle
    from tuner.db import workloads
    from tuner.workload.spec import from_document

    settings = invocation.settings().values
    with invocation.database() as database:
        for task in job.tasks:
            with database.read() as session:
                workload = from_document(workloads.get(session, task.workload.key).document)
            names = " and ".join(each.name for each in objectives)
            invocation.output.note(f"{names} of {task.workload.spec}, with nothing beside it")
            measure_idle(database, workload, job.target.key, job.threads, objectives, settings)
