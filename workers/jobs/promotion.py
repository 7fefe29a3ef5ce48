"""Promotion: a race of the best trials, the incumbent and the default schedule.

The best of many noisy measurements is too good to be true. The race therefore measures
again, in fresh processes, on inputs that no trial has seen, while nothing builds, and
decides by medians with confidence intervals. Its winner is stored and promoted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.db import artifacts, events, jobs, kernels, leases, promotions, tradeoffs
from tuner.db.engine import Session
from tuner.db.errors import IncumbentChanged
from tuner.db.kernels import RUNNERS_UP, Kernel
from tuner.db.promotions import NewKernel
from tuner.errors import TunerError
from tuner.export.artifacts import ArtifactCorrupt, ArtifactMissing, ArtifactStore
from tuner.export.signature import Signer
from tuner.measure.cache import WARM
from tuner.measure.objective import Figures, chosen, front
from tuner.measure.outcome import Timed, Trial, kept_pace
from tuner.measure.timing import ABANDON_FACTOR
from tuner.runtime.prepack import prepack_from
from tuner.workers.backends.backend import Packing
from tuner.workers.fleet.handle import FleetError
from tuner.workers.fleet.messages import (
    BuildFinalists,
    BuildRequest,
    Built,
    Contestant,
    Disqualified,
    Finalist,
    Library,
    RaceOutcome,
    Ranked,
    RunRace,
)
from tuner.workers.jobs.delivery import pack, signature
from tuner.workers.jobs.smaller_trials import on_front
from tuner.workers.jobs.task import TaskRun
from tuner.workers.jobs.timeline import versions

FINALISTS = 4  # best trials with different code that take part, beside default and incumbent
# Where cores changed their speed: of 27 that were raced again, the fastest were the 4th
# and the 7th by trials.
UNSTEADY_FINALISTS = 12
# Limit on a race beyond its kernels' own time; preparing large references takes longest.
RACE_S = 300.0
# Limit on the wait for its answer, which the fleet gives in any case: it has deadlines for the
# lane's preparation (six minutes on a busy machine) before the race, and for the race.
ANSWER_S = 1500.0
BUILD_S = 60.0  # limit on one finalist's build; a patient one's is as many times longer
# Of a build or race that lost its worker, and of a race whose incumbent changed meanwhile.
ATTEMPTS = 3
DEFAULT, INCUMBENT = "default", "incumbent"
# Of a model's kernel, whose place within the model may suit another better: contestants
# that are kept beside the winner, and how many times its time they may take.
MOST_RUNNERS_UP, NEAR = 2, 1.25


class NothingVerified(TunerError):
    """Not even the default schedule computes the right answer; there is no kernel."""

    code = "nothing_verified"


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """What a promotion needs."""

    run: TaskRun
    best: Sequence[Trial]  # timed trials, fastest first
    artifacts: ArtifactStore
    check: Callable[[], None]  # raises when the work is to stop
    signer: Signer | None = None  # of what goes into the store
    canary: bool = False  # whether a champion stays until the winner has won again
    finalists: int | None = None  # at most, where time is short; None: as many as help
    # All trials of the task, where objectives beside time choose among them.
    trials: Sequence[Trial] = ()
    # returns once this process computes nothing that a race of so many contestants would notice
    quiet: Callable[[int], None] = lambda contestants: None


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """A contestant and its provenance: a trial, or the incumbent kernel."""

    contestant: Contestant
    library: Library | None  # built now; None for the incumbent
    trial: Trial | None
    kernel: Kernel | None = None


@dataclass(frozen=True, kw_only=True)
class Contest:
    """A race that is over, with those who took part."""

    entries: Sequence[_Entry]
    race: RaceOutcome


def promote(promotion: Promotion) -> str:
    """Races the finalists; returns the id of the winner, a new kernel or the incumbent.

    Raises NothingVerified, FleetError when workers keep being lost, StaleLease.
    """
    for _ in range(ATTEMPTS):
        contest = contested(promotion)
        try:
            return settle(promotion, contest)
        except IncumbentChanged:
            continue  # another job promoted a kernel of this workload: race against that one
    raise FleetError(
        f"the incumbent kernel changed {ATTEMPTS} times during the race; resume the job"
    )


def contested(promotion: Promotion) -> Contest:
    """Races the finalists; with the default schedule where nobody wins without.

    Raises NothingVerified where there is none to race, and FleetError.
    """
    # The kernels of a model are many, and the calls of some defaults take seconds.
    with_default = not distinct(promotion.best, 1) or (
        promotion.run.default_fits and promotion.run.job.kind != jobs.MODEL
    )
    entries = _entries(promotion, with_default)
    if entries:
        race = _race(promotion, entries)
        if with_default or race.winner is not None:
            return Contest(entries=entries, race=race)
    entries = _entries(promotion, True)
    return Contest(entries=entries, race=_race(promotion, entries))


def distinct(best: Sequence[Trial], count: int) -> list[Trial]:
    """The fastest trials with distinct code, without the default and abandoned ones."""
    chosen: dict[str, Trial] = {}
    for trial in best:
        outcome = trial.outcome
        if isinstance(outcome, Timed) and trial.config and not outcome.conditions.abandoned:
            chosen.setdefault(outcome.artifact, trial)
    return list(chosen.values())[:count]


def _entries(promotion: Promotion, with_default: bool) -> list[_Entry]:
    """The contestants; there is none where no finalist builds and the default is left out."""
    run = promotion.run
    count = FINALISTS if kept_pace(promotion.best) else UNSTEADY_FINALISTS
    if promotion.finalists is not None:
        count = min(count, promotion.finalists)
    fastest = distinct(promotion.best, count)
    smaller = on_front(promotion.trials, run.job.goal, fastest)
    trials = [*([None] if with_default else []), *fastest, *smaller]
    requests = [
        BuildRequest(number=number, config=trial.config if trial else None, keep=True)
        for number, trial in enumerate(trials)
    ]
    entries = []
    for trial, built in zip(trials, _build(promotion, tuple(requests)), strict=True):
        if isinstance(built.result, Library):
            name = DEFAULT if trial is None else f"trial {trial.number}"
            contestant = Contestant(name=name, path=built.result.path, symbol=built.result.symbol)
            entries.append(_Entry(contestant=contestant, library=built.result, trial=trial))
        elif trial is None:
            raise NothingVerified(
                f"the default schedule of {run.problem.workload.spec} does not build: "
                f"{built.result.message}"
            )
    if not entries:
        return []
    with run.database.read() as session:
        kernel = kernels.find_promoted(
            session,
            run.problem.workload.key,
            run.problem.target.key,
            run.problem.threads,
            cache=run.problem.cache,
        )
    incumbent = _incumbent(promotion, kernel, entries) if kernel is not None else []
    if kernel is not None and incumbent:  # the same code would only race against itself
        entries = [
            entry
            for entry in entries
            if entry.trial is None
            or entry.library is None
            or entry.library.sha256 != kernel.artifact
        ]
    return entries + incumbent


def _incumbent(promotion: Promotion, kernel: Kernel, entries: Sequence[_Entry]) -> list[_Entry]:
    """The incumbent as a contestant; none if its library is lost."""
    try:
        path = promotion.artifacts.verify(kernel.artifact)
    except (ArtifactMissing, ArtifactCorrupt):
        return []
    symbol = entries[0].contestant.symbol  # it depends on the workload alone
    contestant = Contestant(name=INCUMBENT, path=str(path), symbol=symbol)
    return [_Entry(contestant=contestant, library=None, trial=None, kernel=kernel)]


def _build(promotion: Promotion, requests: tuple[BuildRequest, ...]) -> tuple[Built, ...]:
    error: str | None = None
    for _ in range(ATTEMPTS):
        answer = promotion.run.measurer.request_control(
            BuildFinalists(requests=requests),
            timeout_s=BUILD_S * sum(request.patience for request in requests),
            check=promotion.check,
        )
        error = answer.error
        if error is None:
            return tuple(part for part in answer.value if isinstance(part, Built))
    raise FleetError(f"the finalists could not be built: {error}")


def _race(promotion: Promotion, entries: Sequence[_Entry]) -> RaceOutcome:
    incumbent = INCUMBENT if any(entry.kernel for entry in entries) else None
    contestants = tuple(entry.contestant for entry in entries)
    default = DEFAULT if any(contestant.name == DEFAULT for contestant in contestants) else None
    control = RunRace(
        contestants=contestants, default=default or incumbent, incumbent=incumbent, limit_s=RACE_S
    )
    promotion.quiet(len(contestants))
    error: str | None = None
    for _ in range(ATTEMPTS):
        answer = promotion.run.measurer.request_control(
            control, timeout_s=ANSWER_S, check=promotion.check
        )
        error = answer.error
        for outcome in answer.value:
            if isinstance(outcome, RaceOutcome):
                return outcome
    raise FleetError(f"the race could not be run: {error}")


def settle(promotion: Promotion, contest: Contest) -> str:
    """Stores the result of the race; returns the kernel's id.

    Uses neither the fleet nor the job's thread. Raises NothingVerified, IncumbentChanged
    where another job has promoted a kernel meanwhile, StaleLease.
    """
    entries, race = contest.entries, contest.race
    finalists = {finalist.name: finalist for finalist in race.finalists}
    run, default = promotion.run, finalists.get(DEFAULT)
    if race.winner is None:
        text = "no reason"
        if isinstance(default, Disqualified):
            text = f"{default.failure.kind}: {default.failure.message}"
        raise NothingVerified(
            f"not even the default schedule of {run.problem.workload.spec} could be "
            f"verified: {text}"
        )
    winner = finalists[race.winner]
    if isinstance(winner, Disqualified):
        raise FleetError(f"the race was won by {winner.name}, which failed in it")
    entry = next(candidate for candidate in entries if candidate.contestant.name == winner.name)
    incumbent = next(
        (candidate.kernel for candidate in entries if candidate.kernel is not None), None
    )
    others = _tradeoffs(promotion, entries, finalists, winner)
    if entry.kernel is not None:
        with run.database.write("validated") as session:
            kernels.mark_validated(session, entry.kernel.id)
            leases.note_task(session, run.lease, run.task.position, kernel=entry.kernel.id)
            return _with_tradeoffs(session, promotion, entry.kernel.id, others, None)
    new = _new_kernel(promotion, entry, winner, finalists)
    if run.job.kind == jobs.MODEL:
        runners_up = _runners_up(promotion, entries, finalists, winner)
        new = replace(new, schedule={**new.schedule, RUNNERS_UP: runners_up})
    new = replace(new, previous=incumbent.id if incumbent else None)
    with run.database.write("promotion") as session:
        _remember_all(session, promotion, new)
        events.append(
            session, run.lease.job_id, "note", {"task": run.task.position, "text": race.reason}
        )
        kernel = promotions.promote(
            session,
            new,
            lease=run.lease,
            position=run.task.position,
            canary=promotion.canary,
        )
        return _with_tradeoffs(session, promotion, kernel.id, others, new.previous)


def _new_kernel(
    promotion: Promotion, entry: _Entry, ranked: Ranked, finalists: Mapping[str, Finalist]
) -> NewKernel:
    """A contestant that was built now, with its artifacts stored."""
    assert entry.library is not None
    run, default = promotion.run, finalists.get(DEFAULT)
    library, schedule = _store(promotion, entry, ranked)
    return NewKernel(
        workload=run.problem.workload.key,
        target=run.problem.target.key,
        threads=run.problem.threads,
        cache=run.problem.cache,
        schedule=schedule,
        config=entry.trial.config if entry.trial else {},
        artifact=library,
        median_s=ranked.median_s,
        ci95_s=ranked.ci95_s,
        gflops=run.problem.workload.expression.flops / ranked.median_s / 1e9,
        roofline_fraction=run.judge.fraction(ranked.median_s),
        max_rel_error=ranked.max_rel_error,
        verified=True,
        default_median_s=default.median_s if isinstance(default, Ranked) else None,
        versions=versions(),
        race={name: _numbers(finalist) for name, finalist in finalists.items()},
        trial=entry.trial.number if entry.trial else 0,
        workspace_bytes=ranked.workspace_bytes,
        code_bytes=entry.library.code_bytes,
    )


def _tradeoffs(
    promotion: Promotion,
    entries: Sequence[_Entry],
    finalists: Mapping[str, Finalist],
    winner: Ranked,
) -> list[NewKernel]:
    """Contestants with less workspace or code than whoever is faster, not too slow.

    None where time is the only objective.
    """
    if not promotion.run.job.goal.of_trials:
        return []
    limit_s = ABANDON_FACTOR * winner.median_s
    raced = [
        (entry, ranked)
        for entry in entries
        if isinstance(ranked := finalists.get(entry.contestant.name), Ranked)
        and ranked.median_s <= limit_s
    ]
    return [
        _new_kernel(promotion, entry, ranked, finalists)
        for entry, ranked in front(raced, tradeoffs.JUDGED_BY, _figures)
        if entry.library is not None and ranked.name != winner.name
    ]


def _figures(raced: tuple[_Entry, Ranked]) -> Figures:
    entry, ranked = raced
    code_bytes = entry.library.code_bytes if entry.library is not None else None
    if entry.kernel is not None:
        code_bytes = entry.kernel.code_bytes
    return Figures(
        median_s=ranked.median_s, workspace_bytes=ranked.workspace_bytes, code_bytes=code_bytes
    )


def _with_tradeoffs(
    session: Session,
    promotion: Promotion,
    kernel: str,
    others: Sequence[NewKernel],
    replaced: str | None,
) -> str:
    """Stores tradeoffs to a kernel that was promoted; returns the one the goal chooses.

    The kernel that was `replaced` is kept, too, where the goal asks for it and it is one.
    """
    run = promotion.run
    place = (run.problem.workload.key, run.problem.target.key, run.problem.threads)
    for other in others:
        _remember_all(session, promotion, other)
    goal = run.job.goal
    tradeoffs.keep(session, others, run.lease)
    if goal.of_trials and replaced is not None:
        tradeoffs.keep_replaced(session, replaced)
    kept = tradeoffs.settle(session, *place, cache=run.problem.cache)
    if not goal.of_trials:
        return kernel
    best = next(iter(chosen(kept, goal, lambda each: each.figures)), None)
    if best is not None and best.id != kernel:
        kernel = best.id
        leases.note_task(session, run.lease, run.task.position, kernel=kernel)
    return kernel


def _store(promotion: Promotion, entry: _Entry, winner: Ranked) -> tuple[str, dict[str, Any]]:
    """Stores library, object code and export.

    Returns the library's digest, and the schedule, which names the other digests.
    """
    run, store, library = promotion.run, promotion.artifacts, entry.library
    assert library is not None
    path = Path(library.path)
    schedule: dict[str, Any] = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    object_code = path.with_suffix(".o").read_bytes()
    trial = entry.trial.number if entry.trial else 0
    provenance = {
        "job": run.job.id,
        "trial": trial,
        "trace": schedule.get("text"),
        "versions": versions(),
        **({} if run.problem.cache == WARM else {"cache": run.problem.cache}),
    }
    prepack = prepack_from(schedule["prepack"]) if schedule.get("prepack") else None
    packing = Packing(
        problem=run.problem,
        library=library,
        object_code=object_code,
        winner=winner,
        provenance=provenance,
        prepack=prepack,
    )
    export = store.put(pack(packing, promotion.signer))
    return store.put_file(path), {
        **schedule,
        "object": store.put(object_code),
        "export": export,
        "symbol": library.symbol,
    }


def _runners_up(
    promotion: Promotion,
    entries: Sequence[_Entry],
    finalists: Mapping[str, Finalist],
    winner: Ranked,
) -> list[dict[str, Any]]:
    """Contestants nearly as fast as the winner, with their stored object code.

    They race against it inside the model.
    """
    near = []
    for entry in entries:
        ranked = finalists.get(entry.contestant.name)
        if (
            entry.library is not None
            and isinstance(ranked, Ranked)
            and ranked.name != winner.name
            and ranked.median_s <= NEAR * winner.median_s
        ):
            near.append((ranked, entry.trial, entry.library))
    near.sort(key=lambda each: each[0].median_s)
    documents = []
    for ranked, trial, library in near[:MOST_RUNNERS_UP]:
        path = Path(library.path)
        schedule = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        documents.append(
            {
                "trial": trial.number if trial else 0,
                "median_s": ranked.median_s,
                "ci95_s": list(ranked.ci95_s),
                "max_rel_error": ranked.max_rel_error,
                "object": promotion.artifacts.put(path.with_suffix(".o").read_bytes()),
                "symbol": library.symbol,
                "prepack": schedule.get("prepack"),
                "overwritable": schedule.get("overwritable", []),
                "text": schedule.get("text"),
            }
        )
    return documents


def _remember_all(session: Session, promotion: Promotion, new: NewKernel) -> None:
    """The artifacts that a kernel names."""
    for digest, kind in (
        (new.artifact, "library"),
        (new.schedule["object"], "object"),
        (new.schedule["export"], "export"),
        *((runner_up["object"], "object") for runner_up in new.schedule.get(RUNNERS_UP, ())),
    ):
        _remember(session, promotion, digest, kind)


def _remember(session: Session, promotion: Promotion, digest: str, kind: str) -> None:
    size_bytes = promotion.artifacts.path(digest).stat().st_size
    signed = None if promotion.signer is None else signature(promotion.signer, digest)
    artifacts.remember(session, sha256=digest, size_bytes=size_bytes, kind=kind, signature=signed)


def _numbers(finalist: Finalist) -> dict[str, Any]:
    """A contestant's entry in the record of the race."""
    if isinstance(finalist, Disqualified):
        return {"failed": finalist.failure.kind.value, "error": finalist.failure.message}
    return {
        "median_s": finalist.median_s,
        "ci95_s": list(finalist.ci95_s),
        "max_rel_error": finalist.max_rel_error,
        "samples": finalist.samples,
    }
