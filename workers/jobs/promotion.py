"""Promotion: the winner of a race is stored and becomes the kernel of its workload."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.db import artifacts, events, jobs, kernels, leases, promotions, tradeoffs
from tuner.db.engine import Session
from tuner.db.errors import IncumbentChanged
from tuner.db.kernels import RUNNERS_UP
from tuner.db.promotions import NewKernel
from tuner.measure.cache import WARM
from tuner.measure.objective import Figures, chosen, front
from tuner.measure.timing import ABANDON_FACTOR
from tuner.runtime.prepack import prepack_from
from tuner.workers.backends.backend import Packing
from tuner.workers.fleet.handle import FleetError
from tuner.workers.fleet.messages import Disqualified, Finalist, Ranked
from tuner.workers.jobs.contest import (
    ATTEMPTS,
    DEFAULT,
    Contest,
    Entry,
    NothingVerified,
    Promotion,
    contested,
)
from tuner.workers.jobs.delivery import pack, signature
from tuner.workers.jobs.timeline import versions

# Of a model's kernel, whose place within the model may suit another better: contestants
# that are kept beside the winner, and how many times its time they may take.
MOST_RUNNERS_UP, NEAR = 2, 1.25


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


def settle(promotion: Promotion, contest: Contest) -> str:
    """Stores the result of the race and deletes what was built for it; returns the kernel's id.

    Uses neither the fleet nor the job's thread. Raises NothingVerified, IncumbentChanged
    where another job has promoted a kernel meanwhile, StaleLease.
    """
    with contest.built:
        return _settled(promotion, contest)


def _settled(promotion: Promotion, contest: Contest) -> str:
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
    promotion: Promotion, entry: Entry, ranked: Ranked, finalists: Mapping[str, Finalist]
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
    entries: Sequence[Entry],
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


def _figures(raced: tuple[Entry, Ranked]) -> Figures:
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


def _store(promotion: Promotion, entry: Entry, winner: Ranked) -> tuple[str, dict[str, Any]]:
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
    entries: Sequence[Entry],
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
