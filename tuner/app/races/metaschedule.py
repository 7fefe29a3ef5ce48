"""Imports MetaSchedule records: replays, verifies and races them, and promotes winners.

Records are untrusted. A process of its own replays them, and what it compiles is
verified on unseen inputs before it can win.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.app.platforms.cpu import cpu_runner
from tuner.app.races.race import DEFAULT, PLAN, RaceError, default_contender, promoted_kernel
from tuner.db import artifacts, kernels, promotions, targets, workloads
from tuner.db.engine import Database
from tuner.db.kernels import Kernel
from tuner.db.promotions import NewKernel
from tuner.errors import TunerError
from tuner.export.artifacts import ArtifactStore
from tuner.lowering.importers.records import ForeignRecord, RecordError, read_database
from tuner.measure.race import Contender, RaceResult, race
from tuner.measure.statistics import MIN_ROUNDS, race_median_ci95
from tuner.runtime.link import Function, link
from tuner.scratch import temporary_folder
from tuner.settings import Settings
from tuner.target.document import target_to_document
from tuner.target.roofline import roofline_fraction
from tuner.target.target import Target
from tuner.workers.fleet.builder import compiler_environment
from tuner.workers.fleet.messages import Problem
from tuner.workers.jobs.plausibility import work_of
from tuner.workers.jobs.timeline import versions
from tuner.workload.spec import to_document, workload_from_expression
from tuner.workload.tree import expression_from
from tuner.workload.workload import Workload

SYMBOL = "imported"  # the function of a record, as the process that compiles it names it
INCUMBENT = "incumbent"  # name of the promoted kernel in the race
BEST = 8  # records of a workload that are tried: those that claim to be fastest
COMPILE_S = 150.0  # seconds of replaying and compiling one record


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The outcome of one record."""

    record: int  # its line, from 1
    workload: str | None  # its spec; None where it could not be read
    median_s: float | None  # measured here; None where it failed
    claimed_s: float | None
    kernel: str | None  # id, where it was promoted
    reason: str  # why it was refused, failed or lost; empty for what was promoted


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """A record with its workload and its compiled code."""

    record: ForeignRecord
    workload: Workload
    object_code: bytes
    schedule: Mapping[str, Any]
    library: bytes

    @property
    def name(self) -> str:
        """Its name in the race."""
        return f"record {self.record.number}"


def import_database(
    database: Database,
    directory: Path,
    target: Target,
    settings: Settings,
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Imported, ...]:
    """Tries the records of a MetaSchedule work_dir, up to `BEST` for each workload.

    Returns one answer for each record, in the order of the file. A record that fails is
    an answer too. Raises RecordError for a directory without such a database, and where
    the default schedule does not build.
    """
    answers: dict[int, Imported] = {}
    groups: dict[str, list[ForeignRecord]] = {}
    for number, record in enumerate(read_database(directory), start=1):
        if isinstance(record, RecordError):
            answers[number] = _refused(number, str(record))
        else:
            groups.setdefault(record.workload, []).append(record)
    for group in groups.values():
        ordered = sorted(group, key=lambda record: record.claimed_s or float("inf"))
        for late in ordered[BEST:]:
            answers[late.number] = _refused(
                late.number, f"not tried: {BEST} records of its workload claim to be faster", late
            )
        replayed = []
        for record in ordered[:BEST]:
            progress(f"record {record.number}")
            try:
                replayed.append(_replay(record, target, settings.threads))
            except TunerError as error:
                answers[record.number] = _refused(record.number, str(error), record)
        if replayed:
            answers |= {
                imported.record: imported
                for imported in _settle(database, replayed, target, settings)
            }
    return tuple(answers[number] for number in sorted(answers))


def _refused(number: int, reason: str, record: ForeignRecord | None = None) -> Imported:
    """The answer of a record that did not race."""
    claimed_s = None if record is None else record.claimed_s
    return Imported(
        record=number, workload=None, median_s=None, claimed_s=claimed_s, kernel=None, reason=reason
    )


def _replay(record: ForeignRecord, target: Target, threads: int) -> Replayed:
    """The record's workload and code, made by a process of its own. Raises TunerError."""
    request = {
        "workload": record.workload,
        "trace": record.trace,
        "target": target_to_document(target),
    }
    command = [sys.executable, "-P", "-m", "tuner.lowering.importers.import_server"]
    try:
        with temporary_folder("tuner-scratch-import-") as folder:  # all it may write to
            done = subprocess.run(
                command, input=json.dumps(request), env=compiler_environment(), cwd=folder,
                capture_output=True, text=True,
                timeout=COMPILE_S, check=False,
            )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise RecordError(f"replaying it took longer than {COMPILE_S:.0f} s") from error
    if done.returncode != 0:
        raise RecordError(
            f"the compiler ended with status {done.returncode} on it: {done.stderr[-400:].strip()}"
        )
    answer = json.loads(done.stdout)
    if "refused" in answer:
        raise RecordError(str(answer["refused"]))
    workload = workload_from_expression(expression_from(answer["expression"]))
    code = base64.b64decode(answer["object"])
    function = Function.of(workload.expression, SYMBOL, code, isa=target.isa, threads=threads)
    library = link("kernel", [function])
    return Replayed(
        record=record,
        workload=workload,
        object_code=code,
        schedule=answer["schedule"],
        library=library,
    )


def _settle(
    database: Database, replayed: Sequence[Replayed], target: Target, settings: Settings
) -> list[Imported]:
    """Races the records of one workload against the default schedule and the incumbent.

    A record that wins is promoted.
    """
    workload, threads = replayed[0].workload, settings.threads
    incumbent = promoted_kernel(database, workload, target, threads)
    with (
        temporary_folder("tuner-scratch-import-") as folder,
        cpu_runner(settings) as runner,
    ):
        try:
            contenders = [default_contender(workload, target, threads, folder)]
        except RaceError as error:
            raise RecordError(str(error)) from error
        if incumbent is not None:
            contenders.append(_incumbent_contender(database, incumbent, settings))
        for entrant in replayed:
            path = folder / f"{entrant.record.number}.so"
            path.write_bytes(entrant.library)
            contenders.append(_contender(entrant.name, path, SYMBOL, settings))
        result = race(
            contenders,
            runner.prepare(workload, threads=threads, seed=settings.seed),
            rounds=MIN_ROUNDS,
            plan=PLAN,
            default=DEFAULT,
            incumbent=None if incumbent is None else INCUMBENT,
        )
    winner = None if result.decision is None else result.decision.winner
    return [
        _outcome(database, entrant, result, winner, incumbent, target, settings)
        for entrant in replayed
    ]


def _contender(name: str, library: Path, symbol: str, settings: Settings) -> Contender:
    return Contender(
        name=name, library=str(library), symbol=symbol, timeout_s=settings.run_timeout_s
    )


def _incumbent_contender(database: Database, kernel: Kernel, settings: Settings) -> Contender:
    """The promoted kernel as a contender. Raises ArtifactMissing or ArtifactCorrupt."""
    with database.read() as session:
        symbol = str(kernels.schedule(session, kernel.id)["symbol"])
    library = ArtifactStore(settings.artifacts).verify(kernel.artifact)
    return _contender(INCUMBENT, library, symbol, settings)


def _outcome(
    database: Database,
    entrant: Replayed,
    result: RaceResult,
    winner: str | None,
    incumbent: Kernel | None,
    target: Target,
    settings: Settings,
) -> Imported:
    """The answer of a record that raced; the winner is promoted."""
    name, record = entrant.name, entrant.record
    median_s, kernel, reason = None, None, ""
    if name in result.failed:
        failure = result.failed[name]
        reason = f"{failure.kind}: {failure.message}"
    else:
        median_s, _ = race_median_ci95(result.rounds[name])
        if winner == name:
            kernel = promote(database, entrant, result, incumbent, target, settings).id
        else:
            reason = (
                f"it lost the race to "
                f"{winner or 'nobody: not even the default schedule could be verified'}"
            )
    return Imported(
        record=record.number,
        workload=entrant.workload.spec,
        median_s=median_s,
        claimed_s=record.claimed_s,
        kernel=kernel,
        reason=reason,
    )


def promote(
    database: Database,
    entrant: Replayed,
    result: RaceResult,
    incumbent: Kernel | None,
    target: Target,
    settings: Settings,
) -> Kernel:
    """Stores the winner's code and makes it the promoted kernel of its workload."""
    store, workload = ArtifactStore(settings.artifacts), entrant.workload
    problem = Problem(workload=workload, target=target, threads=settings.threads)
    library, code = store.put(entrant.library), store.put(entrant.object_code)
    times = {name: race_median_ci95(rounds) for name, rounds in result.rounds.items()}
    median_s, ci95_s = times[entrant.name]
    new = NewKernel(
        workload=workload.key,
        target=target.key,
        threads=settings.threads,
        schedule={**entrant.schedule, "object": code, "symbol": SYMBOL, "origin": "metaschedule"},
        config={},
        artifact=library,
        median_s=median_s,
        ci95_s=ci95_s,
        gflops=workload.expression.flops / median_s / 1e9,
        roofline_fraction=None
        if target.limits is None
        else roofline_fraction(median_s, work_of(problem), target),
        max_rel_error=result.max_rel_error[entrant.name],
        verified=True,
        default_median_s=times[DEFAULT][0] if DEFAULT in times else None,
        versions=versions(),
        race={
            name: {"median_s": median, "ci95_s": list(interval)}
            for name, (median, interval) in times.items()
        },
        trial=None,
        previous=None if incumbent is None else incumbent.id,
    )
    with database.write("import") as session:
        targets.remember(session, target)
        workloads.remember(session, workload, to_document(workload))
        for digest, content, kind in (
            (library, entrant.library, "library"),
            (code, entrant.object_code, "object"),
        ):
            artifacts.remember(session, sha256=digest, size_bytes=len(content), kind=kind)
        return promotions.promote(session, new)
