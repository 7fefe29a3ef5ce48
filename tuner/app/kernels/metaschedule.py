"""Foreign schedules: MetaSchedule records replayed, verified on unseen inputs, raced,
promoted where they win. Never trusted."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.app.kernels.race import PLAN
from tuner.db import artifacts, kernels, targets, workloads
from tuner.db.engine import Database
from tuner.db.kernels import Kernel, NewKernel
from tuner.errors import TunerError
from tuner.export.artifacts import ArtifactStore
from tuner.lowering.importers.records import ForeignRecord, RecordError, read_database
from tuner.measure.assignment import Assignment
from tuner.measure.outcome import Failed
from tuner.measure.race import Contender, RaceResult, race
from tuner.measure.runner import RunnerProcess
from tuner.measure.statistics import MIN_ROUNDS, race_median_ci95
from tuner.runtime.link import Function, link
from tuner.settings import Settings
from tuner.target.document import target_to_document
from tuner.target.roofline import roofline_fraction
from tuner.target.target import Target
from tuner.workers.backends.table import backend_of
from tuner.workers.fleet.build_server import build
from tuner.workers.fleet.builder import compiler_environment
from tuner.workers.fleet.machine import plan_machine, usable_nodes
from tuner.workers.fleet.messages import BuildRequest, Problem
from tuner.workers.jobs.plausibility import work_of
from tuner.workers.jobs.timeline import versions
from tuner.workload.spec import to_document, workload_from_expression
from tuner.workload.tree import expression_from
from tuner.workload.workload import Workload

SYMBOL = "imported"  # of a record's function, as the process that compiles it names it
DEFAULT, INCUMBENT = "default", "incumbent"
BEST = 8  # records of a workload that are tried, those first that claim to be fastest
COMPILE_S = 150.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What became of one record."""

    record: int  # its line, from 1
    workload: str | None  # its spec; None where it could not be read
    median_s: float | None  # measured here; None where it failed
    claimed_s: float | None
    kernel: str | None  # id, where it was promoted
    reason: str  # why it was refused, failed or lost; empty for what was promoted


@dataclass(frozen=True, kw_only=True)
class _Replayed:
    record: ForeignRecord
    workload: Workload
    object_code: bytes
    schedule: Mapping[str, Any]
    library: bytes


def import_database(
    database: Database,
    directory: Path,
    target: Target,
    settings: Settings,
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Imported, ...]:
    """Tries the records of a MetaSchedule work_dir, up to `BEST` a workload; one answer
    each, in the order of the file.

    Raises RecordError for a directory without such a database; a record that fails is an answer.
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
    claimed_s = None if record is None else record.claimed_s
    return Imported(
        record=number, workload=None, median_s=None, claimed_s=claimed_s, kernel=None, reason=reason
    )


def _replay(record: ForeignRecord, target: Target, threads: int) -> _Replayed:
    """The record's program and code, by a process of its own. Raises TunerError."""
    request = {
        "workload": record.workload,
        "trace": record.trace,
        "target": target_to_document(target),
    }
    command = [sys.executable, "-P", "-m", "tuner.lowering.importers.import_server"]
    try:
        with tempfile.TemporaryDirectory(prefix="tuner-import-") as folder:  # all it may write to
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
    expression = workload.expression
    function = Function(
        symbol=SYMBOL,
        inputs=expression.inputs,
        outputs=tuple(expression.tensor(name) for name in expression.outputs),
        object_code=code,
        isa=target.isa,
        threads=threads,
        tvm_symbol=f"__tvm_ffi_{SYMBOL}",
    )
    library = link("kernel", [function])
    return _Replayed(
        record=record,
        workload=workload,
        object_code=code,
        schedule=answer["schedule"],
        library=library,
    )


def _settle(
    database: Database, replayed: Sequence[_Replayed], target: Target, settings: Settings
) -> list[Imported]:
    """Races the records of one workload against the default schedule and the incumbent;
    the winner is promoted."""
    workload, threads, store = (
        replayed[0].workload,
        settings.threads,
        ArtifactStore(settings.artifacts),
    )
    incumbent = _incumbent(database, workload, target, threads)
    lane = plan_machine(usable_nodes(), threads=threads, declared=settings.lanes).lanes[0]
    with tempfile.TemporaryDirectory(prefix="tuner-import-") as folder, RunnerProcess() as runner:
        contenders = [_default(workload, target, threads, Path(folder))]
        if incumbent is not None:
            path = store.verify(incumbent.artifact)
            symbol = str(_schedule(database, incumbent)["symbol"])
            contenders.append(
                Contender(
                    name=INCUMBENT,
                    library=str(path),
                    symbol=symbol,
                    timeout_s=settings.run_timeout_s,
                )
            )
        for entrant in replayed:
            path = Path(folder) / f"{entrant.record.number}.so"
            path.write_bytes(entrant.library)
            contenders.append(
                Contender(
                    name=_name(entrant),
                    library=str(path),
                    symbol=SYMBOL,
                    timeout_s=settings.run_timeout_s,
                )
            )
        runner.prepare(
            Assignment(workload=workload, lane=lane, threads=threads, seed=settings.seed)
        )
        named = None if incumbent is None else INCUMBENT
        result = race(
            contenders, runner, rounds=MIN_ROUNDS, plan=PLAN, default=DEFAULT, incumbent=named
        )
    winner = None if result.decision is None else result.decision.winner
    return [
        _outcome(database, entrant, result, winner, incumbent, target, settings)
        for entrant in replayed
    ]


def _name(entrant: _Replayed) -> str:
    return f"record {entrant.record.number}"


def _incumbent(
    database: Database, workload: Workload, target: Target, threads: int
) -> Kernel | None:
    with database.read() as session:
        if targets.find(session, target.key) is None:
            return None
        return kernels.find_promoted(session, workload.key, target.key, threads)


def _schedule(database: Database, kernel: Kernel) -> Mapping[str, Any]:
    with database.read() as session:
        return kernels.schedule(session, kernel.id)


def _default(workload: Workload, target: Target, threads: int, folder: Path) -> Contender:
    problem = Problem(workload=workload, target=target, threads=threads)
    built = build(
        backend_of(problem.target).compiler(problem, folder),
        BuildRequest(number=0, config=None),
        folder,
    )
    if isinstance(built, Failed):
        raise RecordError(
            f"the default schedule of {workload.spec} does not build: {built.message}"
        )
    return Contender(name=DEFAULT, library=built.path, symbol=built.symbol, timeout_s=600.0)


def _outcome(
    database: Database,
    entrant: _Replayed,
    result: RaceResult,
    winner: str | None,
    incumbent: Kernel | None,
    target: Target,
    settings: Settings,
) -> Imported:
    name, record = _name(entrant), entrant.record
    median_s, kernel, reason = None, None, ""
    if name in result.failed:
        failure = result.failed[name]
        reason = f"{failure.kind}: {failure.message}"
    else:
        median_s, _ = race_median_ci95(result.rounds[name])
        if winner == name:
            kernel = _promote(database, entrant, result, incumbent, target, settings).id
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


def _promote(
    database: Database,
    entrant: _Replayed,
    result: RaceResult,
    incumbent: Kernel | None,
    target: Target,
    settings: Settings,
) -> Kernel:
    store, workload = ArtifactStore(settings.artifacts), entrant.workload
    problem = Problem(workload=workload, target=target, threads=settings.threads)
    library, code = store.put(entrant.library), store.put(entrant.object_code)
    times = {name: race_median_ci95(rounds) for name, rounds in result.rounds.items()}
    median_s, ci95_s = times[_name(entrant)]
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
        max_rel_error=result.max_rel_error[_name(entrant)],
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
        return kernels.promote(session, new)
