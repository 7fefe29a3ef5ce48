"""Races what searches found, on a quiet machine, and promotes the fastest into a database."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf

from benchmarks.oracle.log import Raced, Searched
from tuner.db import artifacts, kernels, promotions, targets, workloads
from tuner.db.engine import Database
from tuner.db.promotions import NewKernel
from tuner.measure.assignment import Assignment, Lane, Request
from tuner.measure.outcome import Timed
from tuner.measure.runner import RunnerProcess
from tuner.measure.timing import PROMOTION
from tuner.target.target import Target
from tuner.workload.spec import parse_spec, to_document

# Between a trial and a promotion, whose inputs take longer to make than all else.
ROUNDS = 3
PLAN = replace(PROMOTION, budget_s=0.05, warmup_s=0.02)
BEATEN, AFTER = 1.2, 1  # times of the fastest, and rounds, from which a contender is out


def raced(entries: Sequence[Searched], core: int, until_s: float) -> Iterator[Raced]:
    """Each search's finalists in turn, in fresh processes, until `until_s` of the
    monotonic clock."""
    with RunnerProcess() as runner:
        for entry in entries:
            if time.monotonic() > until_s:
                return
            lane = Lane(name=f"cpu:{core}", cores=(core,))
            runner.prepare(Assignment(workload=parse_spec(entry.spec), lane=lane, threads=1))
            race = Raced(spec=entry.spec, rounds_s={}, paces={})
            for number in range(ROUNDS):
                _run_round(runner, entry, number, race)
            yield race


def _run_round(runner: RunnerProcess, entry: Searched, number: int, race: Raced) -> None:
    """Times all that have not failed and are not beaten, and adds it to the race."""
    limit_s = BEATEN * min(race.median_s.values(), default=inf) if number >= AFTER else inf
    for each in entry.finalists:
        name = str(each["number"])
        if number and (name not in race.rounds_s or race.median_s[name] > limit_s):
            continue
        outcome = runner.measure(
            Request(
                name=name,
                library=each["library"],
                symbol=each["symbol"],
                plan=PLAN,
                verification="timed",  # the search has checked it
            )
        )
        if isinstance(outcome, Timed):
            race.rounds_s.setdefault(name, []).append(outcome.median_s)
            race.paces.setdefault(name, []).append(outcome.conditions.pace)


def promote(database: Database, entry: Searched, result: Raced, target: Target) -> None:
    """The fastest of a race as a promoted kernel, which estimates learn from.

    The database is for estimates alone: the store has no libraries of these kernels.
    """
    fastest = min(result.median_s, key=lambda name: result.median_s[name])
    (winner,) = (each for each in entry.finalists if str(each["number"]) == fastest)
    workload, median_s = parse_spec(entry.spec), result.median_s[fastest]
    with database.write("promotion") as session:
        key = targets.remember(session, target)
        workloads.remember(session, workload, to_document(workload))
        artifacts.remember(session, sha256=winner["sha256"], size_bytes=1, kind="library")
        before = kernels.find_promoted(session, workload.key, key, 1)
        if before is not None and before.median_s == median_s:
            return
        new = NewKernel(
            workload=workload.key,
            target=key,
            threads=1,
            schedule={},
            config=winner["config"],
            artifact=winner["sha256"],
            median_s=median_s,
            ci95_s=result.ci95_s(fastest),
            gflops=workload.expression.flops / median_s / 1e9,
            roofline_fraction=None,
            max_rel_error=0.0,
            verified=True,
            default_median_s=None,
            versions={},
            trial=int(winner["number"]),
            previous=None if before is None else before.id,
        )
        promotions.promote(session, new)
