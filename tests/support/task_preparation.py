"""Tasks of a job that are prepared without a fleet."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any

from tests.support.search_history import queue
from tests.support.targets import ZEN5
from tuner.db.engine import Database
from tuner.db.jobs import Job
from tuner.measure.assignment import Lane
from tuner.workers.fleet.messages import FleetPlan, Limits, Submit
from tuner.workers.fleet.policy import JobShare
from tuner.workers.jobs.progress import unobserved
from tuner.workers.jobs.task_preparation import TaskPreparation


class Channel:
    """A fleet and a job's channel to it, which take no candidates."""

    plan = FleetPlan(
        lanes=(Lane(name="cpu:1", cores=(1,)),),
        builder_cores=(0,),
        alternates=False,
        limits=Limits(),
        storage="",
    )

    def __init__(self) -> None:
        self.job_share = JobShare(job="job")
        self.announced: list[str] = []  # specs of workloads

    def submit(self, message: Submit) -> None:
        assert not message.candidates
        self.announced.append(message.problem.workload.spec)

    def set_demand(self, **demand: object) -> None:
        pass

    def wait_ready(self, *waiting: object) -> None:
        pass


def preparing(
    database: Database, background: Executor, *specs: str
) -> tuple[TaskPreparation, Job, Channel]:
    """The preparation of a new job of these workloads, on Zen 5."""
    job, lease = queue(database, *specs)
    assert lease is not None
    channel: Any = Channel()
    preparation = TaskPreparation(
        database=database,
        job=job,
        lease=lease,
        target=ZEN5,
        fleet=channel,
        channel=channel,
        observer=unobserved,
        check_lease=lambda: None,
        check=lambda: None,
        stopping=lambda: False,
        background=background,
    )
    return preparation, job, channel
