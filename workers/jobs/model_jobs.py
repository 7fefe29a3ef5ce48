"""Jobs of a whole model: extracts its kernels and tunes them in rounds within one budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tuner.db import artifacts, events, jobs, leases, targets, tasks, workloads
from tuner.db.engine import Database
from tuner.db.jobs import Job, Task
from tuner.db.leases import Lease
from tuner.errors import TunerError
from tuner.export.archive import export_archive
from tuner.export.artifacts import ArtifactStore
from tuner.export.kernel import ExportKernel
from tuner.export.signature import signer_at
from tuner.measure.outcome import Timed
from tuner.models.description import KernelTime, Measurement, described, to_json
from tuner.models.executors.executor import Executor
from tuner.models.graph_archive import is_packed
from tuner.models.importer import import_model
from tuner.models.reference.check_inputs import check_inputs
from tuner.models.tuning.chain_race import affordable_chains
from tuner.models.tuning.kernel_race import is_affordable, race_s
from tuner.models.tuning.numerics import NumericsPolicy
from tuner.models.tuning.shares import KernelShare, profile
from tuner.models.tuning.task_scheduler import (
    KernelProgress,
    kind_of,
    model_s,
    needless,
    next_kernel,
    round_trials,
)
from tuner.models.tuning.time_plan import TimePlan
from tuner.models.workloads import ModelWorkload, strict_key
from tuner.runtime.link import toolchain_for
from tuner.runtime.toolchain import Toolchain
from tuner.target.target import Target
from tuner.tuning import StopReason, TuningResult
from tuner.workers.jobs.delivery import signature
from tuner.workers.jobs.model_library import (
    CheckedModel,
    Model,
    checked_kernel,
    kernels_of,
    others_of,
)
from tuner.workers.jobs.progress import ModelGain, ModelLate, ModelRound, Observer, unobserved
from tuner.workload.spec import from_document, to_document

# In such a job's settings: how often the model calls each workload, and of those of chains and
# siblings what they do the work of, and what is called beside them.
CALLS, CHAINS, BESIDE = "calls", "chains", "beside"
NAME = "model"  # of the library that a job makes

SearchRound = Callable[[Task, int, float | None, Task | None], TuningResult | None]
"""Searches one task up to a number of trials within so many seconds; None if interrupted.

The last argument is the task whose first round is next whatever this one finds, None where
that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCalls:
    """How a model calls its workloads, by their keys."""

    counts: Mapping[str, int]  # in one call of the model
    # of what a chain or siblings need, the keys of what is not called then
    chains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # and those of what else has to be called then
    beside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class ModelMissing(TunerError):
    """A job of a model that names no file."""

    code = "model_missing"


def with_workloads(
    database: Database, lease: Lease, job: Job, store: ArtifactStore
) -> tuple[Job, ModelCalls]:
    """Adds a task for each kernel of the model to the job.

    Returns the job, and how the model calls its workloads. Raises ModelRefused for a file
    that is no model, ReaderMissing, ArtifactMissing and ArtifactCorrupt.
    """
    calls = job.settings.get(CALLS)
    if job.tasks and isinstance(calls, dict):
        return job, ModelCalls(
            counts={str(key): int(count) for key, count in calls.items()},
            chains={key: tuple(keys) for key, keys in job.settings.get(CHAINS, {}).items()},
            beside={key: tuple(keys) for key, keys in job.settings.get(BESIDE, {}).items()},
        )
    digest = job.settings.get(tasks.MODEL)
    if not isinstance(digest, str):
        raise ModelMissing(f"job {job.id} is of a model and names no file; submit it again")
    content = store.get(digest)
    graph = import_model(content, job.settings.get(tasks.SHAPES) or {})
    with database.read() as session:
        target = targets.get(session, job.target)
    # Whoever submitted a packed graph makes its library, of its nodes.
    chains = () if is_packed(content) else affordable_chains(graph, target, job.seconds)
    extracted = policy_of(job).workloads(graph, target, chains)
    described_job = _added(database, lease, extracted, store, to_json(described(graph)))
    return described_job, model_calls(extracted)


def model_calls(parts: Sequence[ModelWorkload]) -> ModelCalls:
    """How a model, or several together, call these workloads."""
    counts: dict[str, int] = {}
    for part in parts:
        counts[part.workload.key] = counts.get(part.workload.key, 0) + part.calls
    chains = {
        part.workload.key: part.instead_of for part in parts if part.workload.numerics == "strict"
    }
    return ModelCalls(
        counts=counts,
        chains={key: keys for key, keys in chains.items() if keys},
        beside={part.workload.key: part.beside for part in parts if part.beside},
    )


def with_library(
    database: Database,
    lease: Lease,
    job: Job,
    store: ArtifactStore,
    executor_of: Callable[[Target], AbstractContextManager[Executor | None]],
    signing_key: Path | None,
) -> None:
    """Stores the library of the whole model, checked against ONNX's evaluator and timed.

    Does nothing for jobs that were submitted with workloads or as a packed graph, since
    who submitted it makes the library. Without an executor, on a machine that is not the
    job's target, the library cannot be checked; an event then says that it is not made.
    Raises ModelUnfinished, ModelWrong, ModelRefused, DeviceError, and what an export does.
    """
    if job.settings.get(CALLS) is not None or job.settings.get(tasks.LIBRARY) is not None:
        return
    content, shapes = (
        store.get(str(job.settings[tasks.MODEL])),
        job.settings.get(tasks.SHAPES) or {},
    )
    if is_packed(content):
        return
    with database.read() as session:
        target = targets.get(session, job.target)
    graph = import_model(content, shapes)
    chains = affordable_chains(graph, target, job.seconds)
    model = Model(content=content, shapes=shapes, graph=graph, chains=chains)
    policy = policy_of(job)
    kernels = kernels_of(database, model, target, job.threads, store, policy)
    affordable = is_affordable(race_s(model.graph), job.seconds)
    others = others_of(database, kernels, target, job.threads, store) if affordable else None
    inputs = check_inputs(model.graph, model.values)
    with executor_of(target) as executor:
        if executor is None:
            text = (
                f"the model's library is not made: it can only be checked on {target.name}; its "
                f"kernels are ready"
            )
            _noted(database, job.id, text)
            return
        executor.refuse(model.graph)
        checked = checked_kernel(
            model, kernels, target, job.threads, NAME, executor, policy, others
        )
        shares = profile(checked.graph, checked.kernels, target, job.threads, inputs, executor)
    for chosen in (checked.numerics, checked.chains, checked.race):
        if chosen is not None:
            _noted(database, job.id, chosen.summary)
    tools = toolchain_for(target)
    measurement = measured(checked.kernel, shares)
    _keep(database, lease, store, checked, measurement, tools, signing_key)


def measured(built: ExportKernel, shares: Sequence[KernelShare]) -> Measurement:
    """What was measured of a model's library, and of its kernels within it."""
    return Measurement(
        median_s=built.median_s,
        ci95_s=built.ci95_s,
        max_rel_error=built.max_rel_error,
        kernels={
            share.workload.key: KernelTime(
                inside_s=share.inside_s, peak_fraction=share.peak_fraction
            )
            for share in shares
        },
    )


def policy_of(job: Job) -> NumericsPolicy:
    """The numerics that a model's job allows."""
    return NumericsPolicy.of(job.settings.get(tasks.NUMERICS), job.settings.get(tasks.MAX_ERROR))


def _noted(database: Database, job_id: str, text: str) -> None:
    with database.write("note") as session:
        events.append(session, job_id, "note", {"text": text})


def _keep(
    database: Database,
    lease: Lease,
    store: ArtifactStore,
    checked: CheckedModel,
    measurement: Measurement,
    tools: Toolchain,
    signing_key: Path | None,
) -> None:
    """Stores the library and the description of what is in it, and records both in the job."""
    signer = None if signing_key is None else signer_at(signing_key)
    archive = export_archive([checked.kernel], NAME, toolchain=tools, signer=signer)
    description = to_json(described(checked.graph))
    digest, described_as = store.put(archive), store.put(description)
    signed = None if signer is None else signature(signer, digest)
    _note_library(
        database,
        lease,
        Delivered(
            library=digest,
            library_bytes=len(archive),
            signature=signed,
            description=described_as,
            description_bytes=len(description),
            measurement=measurement,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """What the store holds of a finished model."""

    library: str  # digest of the archive
    library_bytes: int
    signature: str | None
    description: str  # digest
    description_bytes: int
    measurement: Measurement


def _note_library(database: Database, lease: Lease, delivered: Delivered) -> None:
    with database.write("library") as session:
        artifacts.remember(
            session,
            sha256=delivered.library,
            size_bytes=delivered.library_bytes,
            kind="export",
            signature=delivered.signature,
        )
        artifacts.remember(
            session,
            sha256=delivered.description,
            size_bytes=delivered.description_bytes,
            kind="description",
        )
        tasks.note_library(
            session,
            lease,
            delivered.library,
            description=delivered.description,
            measurement=asdict(delivered.measurement),
        )


def _added(
    database: Database,
    lease: Lease,
    extracted: Sequence[ModelWorkload],
    store: ArtifactStore,
    description: bytes,
) -> Job:
    digest = store.put(description)
    with database.write("model") as session:
        artifacts.remember(session, sha256=digest, size_bytes=len(description), kind="description")
        keys = [
            workloads.remember(session, part.workload, to_document(part.workload))
            for part in extracted
        ]
        return tasks.add(session, lease, keys, description=digest)


def tune_in_rounds(
    database: Database,
    job: Job,
    left: Sequence[Task],
    calls: ModelCalls,
    search_round: SearchRound,
    plan: TimePlan,
    observer: Observer = unobserved,
    promote: Callable[[int], bool] | None = None,
) -> bool:
    """Spends the job's budget on its tasks, each round on the most promising one.

    Returns whether it came to an end. The budget is `job.trials` for each task on average.
    Rounds end where `plan`, whose kernels are numbered as the tasks in `left`, has no
    more time for them: kernels without a round are left to their default schedules.
    `promote` promotes the kernel of a place, by which the plan learns what promotions take, and
    returns whether it came to an end.
    """
    subjects = [_subject(database, task, calls) for task in left]
    total = job.trials * len(left)
    gains = _Gains(plan.clock)
    while True:
        position = next_kernel(subjects)
        spent = sum(subject.trials for subject in subjects)
        seconds = plan.search_s()
        searched = sum(bool(subject.best_s) for subject in subjects)
        observer(ModelRound(trials=spent, budget=total, searched=searched, kernels=len(subjects)))
        probe = None if promote is None else plan.probe()
        if promote is not None and probe is not None:
            if not promote(probe):
                return False
            continue
        if position is None or spent >= total or (seconds is not None and seconds <= 0):
            gain = gains.recent()
            if gain is not None:
                observer(gain)
            _note_lateness(database, job, subjects, plan, observer)
            return True
        subject = subjects[position]
        first = not subject.best_s and not subject.optional
        trials = subject.trials + min(
            min(plan.first_trials(_fresh(subjects)), job.trials)
            if first
            else round_trials(subject),
            total - spent,
        )
        begun_s = plan.clock()
        following = _following(subjects, position)
        result = search_round(
            left[position], trials, seconds, None if following is None else left[following]
        )
        if result is None or result.reason is StopReason.CANCELLED:
            return False
        # The first round has waited for workers to start, which says nothing of a trial.
        took_s = result.elapsed.total_s if not spent else plan.clock() - begun_s
        plan.searched(position, result.trials - subject.trials, took_s)
        best_s = min(
            (trial.outcome.median_s for trial in result.best if isinstance(trial.outcome, Timed)),
            default=None,
        )
        finished = result.reason in (StopReason.EXHAUSTED, StopReason.TARGET)
        subjects[position] = subject.after(result.trials, best_s, finished=finished)
        gains.note(subjects)


def _note_lateness(
    database: Database,
    job: Job,
    subjects: Sequence[KernelProgress],
    plan: TimePlan,
    observer: Observer,
) -> None:
    """Says, once rounds are over, that kernels without one make the job late, or stay as they
    are stored."""
    places = [place for place, subject in enumerate(subjects) if not subject.optional]
    kept = sum(map(plan.keeps, places))
    unsearched = sum(_is_fresh(subjects[place]) and not plan.keeps(place) for place in places)
    late_s = plan.late_s()
    if kept or (unsearched and late_s > 0):
        late = ModelLate(kernels=len(subjects), unsearched=unsearched, kept=kept, seconds=late_s)
        _noted(database, job.id, late.text)
        observer(late)


def _following(subjects: Sequence[KernelProgress], position: int) -> int | None:
    """The kernel whose first round comes after the round at `position`, whatever that finds.

    None where it decides what is next.
    """
    others = [
        replace(subject, finished=True) if place == position else subject
        for place, subject in enumerate(subjects)
    ]
    following = next_kernel(others)
    return None if following is None or subjects[following].best_s else following


def _fresh(subjects: Sequence[KernelProgress]) -> int:
    """Kernels that the model needs whose first round is to come."""
    return sum(map(_is_fresh, subjects))


def _is_fresh(subject: KernelProgress) -> bool:
    return not (subject.best_s or subject.finished or subject.optional)


class _Gains:
    """The model's time after each round, once all its kernels have one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times: list[tuple[float, float]] = []  # when, and seconds of a call

    def note(self, subjects: Sequence[KernelProgress]) -> None:
        if all(subject.best_s or subject.finished for subject in subjects):
            self._times.append((self._clock(), model_s(subjects)))

    def recent(self) -> ModelGain | None:
        """Of the later half of the time; None with fewer than two rounds."""
        if len(self._times) < 2:
            return None
        (first_s, _), (last_s, after) = self._times[0], self._times[-1]
        middle_s = (first_s + last_s) / 2
        begin_s, before = next(entry for entry in reversed(self._times) if entry[0] <= middle_s)
        return ModelGain(seconds=last_s - begin_s, before_s=before, after_s=after)


def needless_tasks(
    database: Database, lease: Lease, left: Sequence[Task], calls: ModelCalls
) -> frozenset[int]:
    """The places in `left`, as `tune_in_rounds` had it, of tasks that need no kernel.

    Those are fast variants, chains and siblings that are no faster than what does the same.
    They are marked as done.
    """
    with database.read() as session:
        current = jobs.get(session, lease.job_id).tasks
    tasks_now = [current[task.position] for task in left]
    places = needless([_subject(database, task, calls) for task in tasks_now])
    for place in sorted(places):
        with database.write("task") as session:
            leases.note_task(session, lease, left[place].position, state="succeeded")
    return places


def _subject(database: Database, task: Task, calls: ModelCalls) -> KernelProgress:
    with database.read() as session:
        workload = from_document(workloads.get(session, task.workload).document)
    expression = workload.expression
    medians = () if task.best_median_s is None else (task.best_median_s,)
    return KernelProgress(
        calls=calls.counts.get(task.workload, 1),
        flops=expression.flops,
        kind=f"{kind_of(expression)}:{workload.numerics}",
        key=task.workload,
        instead_of=(strict_key(workload),)
        if workload.numerics == "fast"
        else calls.chains.get(task.workload, ()),
        beside=calls.beside.get(task.workload, ()),
        trials=task.trials_done,
        best_s=medians,
        trials_at=(task.trials_done,) if medians else (),
    )
