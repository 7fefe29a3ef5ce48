"""The roles played by the local database and this machine."""

from __future__ import annotations

import builtins
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tuner.api import answers, race_answers
from tuner.api.answer_queries import job_answers, kernel_answers
from tuner.api.losses import Losses
from tuner.api.race_schemas import RacesAnswer, RegressionAnswer
from tuner.api.schemas import EventAnswer, JobAnswer, KernelAnswer, RollbackAnswer, TrialAnswer
from tuner.cli.backend.roles import LAST, Backend, Exported, ExportRequest, JobRequest
from tuner.cli.interruption import stop_on_signal
from tuner.db import events, jobs, kernels, promotions, races, trial_pages
from tuner.db.engine import Database, Session, open_database
from tuner.db.errors import NotFound
from tuner.db.jobs import FINISHED
from tuner.db.trial_pages import TrialFilter
from tuner.errors import UsageError
from tuner.settings import Settings

if TYPE_CHECKING:
    from tuner.api.estimate_schemas import EstimatesAnswer
    from tuner.api.lookup_schemas import LookupAnswer
    from tuner.cli.progress import TuningDisplay
    from tuner.workload.workload import Workload

PAGE = 500
POLL_S = 0.25  # between two reads of a job's events


@dataclass(slots=True)
class OpenedLate:
    """The database, opened when it is first needed.

    So a command that is refused before leaves no file behind.
    """

    settings: Settings
    create: bool  # whether a missing database is made
    opened: list[Database] = field(default_factory=list)

    def __call__(self) -> Database:
        if not self.opened:
            self.opened.append(open_database(self.settings.db, create=self.create))
        return self.opened[0]


@contextmanager
def local_backend(settings: Settings, *, create: bool) -> Iterator[Backend]:
    """The backend on the settings' database, which is closed after the block."""
    database = OpenedLate(settings, create)
    try:
        yield Backend(
            where=settings.db,
            jobs=LocalJobs(database),
            work=LocalWork(database, settings),
            kernels=LocalKernels(database, settings),
        )
    finally:
        for opened in database.opened:
            opened.close()


@dataclass(frozen=True, slots=True)
class LocalJobs:
    """`Jobs` of the database."""

    database: OpenedLate

    def list(self, *, states: Sequence[str], limit: int) -> list[JobAnswer]:
        listed: list[jobs.Job] = []
        cursor: str | None = None
        with self.database().read() as session:
            while True:
                page = jobs.list_page(
                    session, state=states, cursor=cursor, limit=min(PAGE, limit - len(listed))
                )
                listed += page.items
                cursor = page.next
                if cursor is None or len(listed) >= limit:
                    return job_answers(session, listed)

    def get(self, job: str) -> JobAnswer:
        with self.database().read() as session:
            return job_answers(session, [jobs.get(session, resolve(session, job))])[0]

    def trials(self, job: str, *, outcomes: Sequence[str]) -> Sequence[TrialAnswer]:
        trials: list[TrialAnswer] = []
        cursor: str | None = None
        where = TrialFilter(outcome=tuple(outcomes))
        with self.database().read() as session:
            job_id = jobs.get(session, resolve(session, job)).id
            while True:
                page = trial_pages.list_page(
                    session, job_id, where=where, cursor=cursor, limit=PAGE
                )
                trials += [answers.trial(trial) for trial in page.items]
                cursor = page.next
                if cursor is None:
                    return trials

    def cancel(self, job: str) -> JobAnswer:
        from tuner.app.jobs.abandoned import cancel

        with self.database().write("cancel") as session:
            return job_answers(session, [cancel(session, resolve(session, job))])[0]

    def events(self, job: str, *, after: int) -> Iterator[EventAnswer]:
        while True:
            with self.database().read() as session:
                state = jobs.get(session, job).state
                recent = events.after(session, job, after, limit=PAGE)
            for event in recent:
                after = event.sequence
                yield answers.event(event)
            if len(recent) < PAGE:
                if state in FINISHED:
                    return
                time.sleep(POLL_S)


@dataclass(frozen=True, slots=True)
class LocalWork:
    """`Work` on this machine."""

    database: OpenedLate
    settings: Settings

    def submit(self, request: JobRequest) -> JobAnswer:
        from tuner.app.devices import device_lanes
        from tuner.app.export.portfolio import members_to_tune
        from tuner.app.jobs.lifecycle import submit
        from tuner.app.machine import checked_target, with_limits
        from tuner.measure.device.room import check_room

        settings = self.settings
        machine = checked_target(settings, elsewhere=not request.families, on_devices=True)
        devices = device_lanes(settings, machine)
        for workload in request.workloads:
            check_room(workload, devices)
        database = self.database()
        limited = with_limits(database, machine, devices)
        members = [
            member
            for family in request.families
            for member in members_to_tune(family, limited, settings.threads)
        ]
        by_key = {workload.key: workload for workload in (*request.workloads, *members)}
        job = submit(
            database,
            list(by_key.values()),
            limited,
            settings,
            priority=request.priority,
            improve=request.improve,
        )
        with database.read() as session:
            return job_answers(session, [job])[0]

    def learn(
        self, workloads: Sequence[Workload], weights: Sequence[float], *, seconds: float
    ) -> JobAnswer:
        from tuner.app.estimates import learn

        database = self.database()
        job = learn(database, workloads, weights, self.settings, seconds=seconds)
        with database.read() as session:
            return job_answers(session, [job])[0]

    def resume(self, job: str, *, trials: int | None, seconds: float | None) -> JobAnswer:
        from tuner.app.jobs.lifecycle import requeue

        with self.database().read() as session:
            job_id = resolve(session, job)
        queued = requeue(self.database(), job_id, trials=trials, seconds=seconds)
        with self.database().read() as session:
            return job_answers(session, [queued])[0]

    def run(self, job: str, display: TuningDisplay) -> JobAnswer:
        from tuner.app.jobs.lifecycle import run
        from tuner.workers.jobs.orchestrator import Interruption

        with stop_on_signal(display.note) as stopping:
            report = run(
                self.database(),
                job,
                self.settings,
                observer=display.observe,
                interrupt=lambda: Interruption.CANCEL if stopping() else None,
            )
        with self.database().read() as session:
            return job_answers(session, [report.job])[0]


@dataclass(frozen=True, slots=True)
class LocalKernels:
    """`Kernels` of the database."""

    database: OpenedLate
    settings: Settings

    def list(self, *, workload: str | None) -> list[KernelAnswer]:
        return self._all(kernels.PROMOTED, workload)

    def canaries(self) -> Sequence[KernelAnswer]:
        return self._all(kernels.CANARY, None)

    def promote(self, kernel: str) -> KernelAnswer:
        with self.database().write("promote") as session:
            return kernel_answers(session, [promotions.promote_canary(session, kernel)])[0]

    def _all(self, state: str, workload: str | None) -> builtins.list[KernelAnswer]:
        listed: list[kernels.Kernel] = []
        cursor: str | None = None
        with self.database().read() as session:
            while True:
                page = kernels.list_page(
                    session, state=(state,), workload=workload, cursor=cursor, limit=PAGE
                )
                listed += page.items
                cursor = page.next
                if cursor is None:
                    return kernel_answers(session, listed)

    def get(self, kernel: str) -> KernelAnswer:
        with self.database().read() as session:
            stored = kernels.get(session, kernel)
            loss = Losses().of_kernel(session, stored)
            return kernel_answers(session, [stored])[0].model_copy(update={"loss": loss})

    def races(self, kernel: str) -> RacesAnswer:
        with self.database().read() as session:
            kernels.get(session, kernel)
            series = races.series(session, kernel)
        return RacesAnswer(kernel=kernel, items=[race_answers.race(each) for each in series])

    def regressions(self, *, states: Sequence[str]) -> Sequence[RegressionAnswer]:
        with self.database().read() as session:
            listed: list[RegressionAnswer] = []
            cursor: str | None = None
            while True:
                page = races.list_regressions(session, state=states, cursor=cursor, limit=PAGE)
                listed += [race_answers.regression(each) for each in page.items]
                cursor = page.next
                if cursor is None:
                    return listed

    def rollback(self, kernel: str) -> RollbackAnswer:
        with self.database().write("rollback") as session:
            before = promotions.rollback(session, kernel)
            promoted = None if before is None else kernel_answers(session, [before])[0]
        return RollbackAnswer(rolled_back=kernel, promoted=promoted)

    def export(self, request: ExportRequest) -> Sequence[Exported]:
        from tuner.app.export.exporters import LibraryRequest, export_library_of
        from tuner.app.export.kernels import chosen_kernels, kernels_by

        if request.public_key is not None:
            raise UsageError(
                "--public-key says who must have signed what a service sends, and these kernels "
                "are signed here; leave it out, or name the service by --server"
            )
        database = self.database()
        library = LibraryRequest(
            kernels=kernels_by(
                database, self.settings.goal, cache=self.settings.cache, within=request.within
            )
            if request.every
            else chosen_kernels(database, request.ids),
            families=request.families,
            directory=request.directory,
            name=request.name,
            isa=request.isa,
            frameworks=request.frameworks,
        )
        manifest = export_library_of(database, library, self.settings)
        return [Exported(directory=request.directory, manifest=dict(manifest))]

    def lookup(
        self, workload: Workload, *, threads: int | Literal["auto"] | None, within: float | None
    ) -> LookupAnswer:
        from tuner.app.lookup import look_up

        return look_up(self.database(), workload, self.settings, threads=threads, within=within)

    def estimate(self, workloads: Sequence[Workload]) -> EstimatesAnswer:
        from tuner.app.estimates import estimate

        return estimate(self.database(), workloads, self.settings)


def resolve(session: Session, name: str) -> str:
    """The id of a job named on the command line; LAST is the newest job.

    Raises NotFound where there is no job.
    """
    if name != LAST:
        return name
    page = jobs.list_page(session, limit=1)
    if not page.items:
        raise NotFound("there is no job yet; `tuner tune SPEC` makes one")
    return page.items[0].id
