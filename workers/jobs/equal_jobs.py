"""Jobs that ask for the same of one model: one searches, and the others take what it has found.

With the same seed and budget they would try the same candidates.
"""

from __future__ import annotations

from tuner.db import events, jobs, leases, tasks
from tuner.db.engine import Database
from tuner.db.jobs import Job
from tuner.db.leases import Lease

# Of a job's settings, what its request has decided.
_ASKED = (tasks.MODEL, tasks.SHAPES, tasks.NUMERICS, tasks.MAX_ERROR)
_NOTE = (
    "an equal job has succeeded since this one was submitted; its kernels are taken, and nothing "
    "was measured"
)


def are_equal(job: Job, other: Job) -> bool:
    """Whether both are of one model, with the same budget, strategy and seed.

    Who submitted them and how urgent they are makes no difference.
    """
    return job.kind == other.kind == jobs.MODEL and _request(job) == _request(other)


def _request(job: Job) -> tuple[object, ...]:
    searched = (job.target, job.threads, job.trials, job.seconds, job.strategy, job.seed)
    return (*searched, job.cache, job.goal, *(job.settings.get(name) for name in _ASKED))


def take_results(database: Database, lease: Lease, job: Job) -> bool:
    """Ends the tasks of a model's job as those of an equal one that has succeeded since it was
    submitted; whether there is one. A job with trials of its own goes on with these, and one
    that was resumed searches.

    Raises StaleLease.
    """
    if jobs.HAD_S in job.settings or any(task.trials_done for task in job.tasks):
        return False
    with database.write("known") as session:
        ended = jobs.succeeded_since(session, job.created_at, kind=job.kind, target=job.target)
        for other in ended:
            results = {task.workload: task for task in other.tasks}
            if are_equal(job, other) and results.keys() == {task.workload for task in job.tasks}:
                break
        else:
            return False
        for task in job.tasks:
            result = results[task.workload]
            leases.note_task(
                session,
                lease,
                task.position,
                state=result.state,
                kernel=result.kernel,
                error=result.error,
            )
        events.append(session, job.id, "note", {"text": _NOTE})
    return True
