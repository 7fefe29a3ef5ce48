"""Record a table for `tuner replay`: build, check and time a sub-lattice of a space.

    python -m benchmarks.search.record matmul:M=128,N=128,K=128 --configs 1600 -o tests/tables

Configs with the same description are duplicates to a search. One of them is measured,
and the others share its time. Some of the others are measured too, as a check.

Compiler, runner, checks and screening plan are the product's own, the compiler on one
core and the runner on another. The fastest tenth is then timed again, longer, in several
rounds of changing order while nothing is built. The table keeps that time, because the
best of thousands of short timings is lucky as well as fast. Configs that compile to the
same code share its time.

A stopped recording goes on from its log when it is started again. The log is deleted
once the table is written.

`--sampled` takes random configs of the whole space instead, `--part` a random part of the
sub-lattice. Both are histories to learn from rather than spaces to search.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from math import ceil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.search.lattice import sublattice
from benchmarks.search.log import DEFAULT_ROW, RecordingLog
from tuner.cost_model.features import featurizer
from tuner.errors import UsageError
from tuner.measure.assignment import Assignment, Lane, Request
from tuner.measure.outcome import Failed, FailureKind, Outcome, Timed
from tuner.measure.runner import RunnerProcess
from tuner.measure.timing import ABANDON_FACTOR, SCREENING, TimingPlan
from tuner.replay.table import RecordedTable, outcome_codes, write_table
from tuner.search.domain import Domain
from tuner.spaces.by_target import cpu_space
from tuner.spaces.core.space import Points, Space
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.cpu.facts import LoopNestFacts
from tuner.target.capability import is_declared, serves
from tuner.target.detect import detect_cpu, parse_target
from tuner.target.document import target_to_document
from tuner.target.target import Target
from tuner.version import __version__
from tuner.workers.fleet.builder import Compiler
from tuner.workers.fleet.messages import BuildRequest, Library, Limits, Problem
from tuner.workload.spec import parse_spec, to_document

# Libraries built before they are timed: the compiler never waits, and few files lie about.
PREBUILT = 8
ATTEMPTS = 3  # of a config that infrastructure lost
AGAIN_SHARE = 0.1
AGAIN_PLAN = TimingPlan(budget_s=0.1, min_samples=5)
AGAIN_ROUNDS = 3  # what disturbs a machine for a while falls on one of them
GROWTH = 1.1  # of the sub-lattice, until it has as many descriptions as were asked for
DUPLICATES = 64  # configs measured beside another of their description
# configs of a sub-lattice for each description asked for; beyond it a space has no more
# to tell apart
MOST_DUPLICATES = 16
# Beyond it two calls are enough: that a config is hopeless needs no second digit.
ABANDON = 4 * ABANDON_FACTOR


@dataclass(frozen=True, kw_only=True)
class Recording:
    problem: Problem
    space: Space  # the sub-lattice, or the whole space where its configs are a sample
    points: Points  # those recorded, by rank
    # (points,) The row that is measured in place of each point, often its own.
    measured_as: NDArray[np.intp]
    log: RecordingLog
    build_core: int
    run_core: int
    cut: int | None  # configs measured by this call at most


def prepared(
    spec: str,
    *,
    configs: int,
    sampled: bool,
    part: int | None,
    threads: int,
    folder: Path,
    name: str | None,
    cores: Sequence[int],
    target: Target | None = None,
) -> Recording:
    """For this machine, or a declared CPU that it is.

    Raises UsageError for a spec that is none, and for a log of another recording in the way.
    """
    workload, target = parse_spec(spec), target or detect_cpu()
    whole = cpu_space(workload, target, threads)
    if sampled:
        space, points = whole.space, _sample(Domain(whole.space), configs)
        measured_as = np.arange(len(points))
    else:
        space, points, measured_as = _told_apart(whole, configs)
    if part is not None:
        described = np.unique(measured_as)
        points = points[
            described[np.sort(np.random.default_rng(0).permutation(len(described))[:part])]
        ]
        measured_as = np.arange(len(points))
    problem = Problem(workload=workload, target=target, threads=threads)
    stem = name or "".join(letter if letter.isalnum() else "_" for letter in spec)
    about = {
        "spec": workload.spec,
        "target": target.key,
        "threads": threads,
        "sketches": [
            {knob.name: list(knob.values) for knob in sketch.knobs} for sketch in space.combinations
        ],
        "points": sha256(np.ascontiguousarray(points, np.int32).tobytes()).hexdigest(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    return Recording(
        problem=problem,
        space=space,
        points=points,
        measured_as=measured_as,
        log=RecordingLog(path=folder / f"{stem}.jsonl", about=json.loads(json.dumps(about))),
        build_core=cores[0],
        run_core=cores[-1],
        cut=None,
    )


def _told_apart(
    whole: TargetSpace[LoopNestFacts], configs: int
) -> tuple[Space, Points, NDArray[np.intp]]:
    """A sub-lattice of at least `configs` descriptions, as far as the space has them.

    Gives also its points, and for each the row that is measured in its place. That is
    the first of its description, but for DUPLICATES random ones.
    """
    describe, most = featurizer(whole), configs
    while True:
        space = sublattice(whole.space, most)
        points = Domain(space).points()
        features = describe(whole.space.points_of(space, points))
        _, first, which = np.unique(features, axis=0, return_index=True, return_inverse=True)
        if (
            len(first) >= configs
            or space.size == whole.space.size
            or most > MOST_DUPLICATES * configs
        ):
            measured_as = first[which.ravel()]
            duplicates = np.flatnonzero(measured_as != np.arange(len(points)))
            checked = np.random.default_rng(0).permutation(duplicates)[:DUPLICATES]
            measured_as[checked] = checked
            return space, points, measured_as
        most = ceil(most * GROWTH)


def _sample(domain: Domain, configs: int) -> Points:
    """Different random points, by rank. All points of a domain that has no more."""
    if domain.size <= configs:
        return domain.points()
    drawn = domain.sample(np.random.default_rng(0), 2 * configs)
    _, first = np.unique(domain.keys(drawn), return_index=True)
    kept = np.sort(first)[:configs]
    return drawn[kept[np.argsort(domain.keys(drawn[kept]))]]


class Bench:
    """A compiler and a runner, each on its core.

    It measures the rows of a recording one after the other while the next are built.
    """

    def __init__(self, recording: Recording, stack: ExitStack) -> None:
        self._recording = recording
        self._storage = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="tuner-record-"))
        )
        self._compiler = Compiler(
            storage=self._storage, cores=(recording.build_core,), limits=Limits()
        )
        stack.callback(self._compiler.close)
        self._runner = stack.enter_context(RunnerProcess())
        self._pool = stack.enter_context(ThreadPoolExecutor(1))
        lane = Lane(name=f"cpu:{recording.run_core}", cores=(recording.run_core,))
        problem = recording.problem
        self._runner.prepare(
            Assignment(workload=problem.workload, lane=lane, threads=problem.threads)
        )
        self._best_s = float("inf")

    def outcomes(self, rows: Iterable[int], plan: TimingPlan) -> Iterator[tuple[int, Outcome]]:
        """Each row with its outcome, in order.

        Within one call, the same code is timed once.
        """
        timed: dict[str, Outcome] = {}
        waiting: list[tuple[int, Future[Library | Failed]]] = []
        queue = iter(rows)
        while True:
            while len(waiting) < PREBUILT and (row := next(queue, None)) is not None:
                waiting.append((row, self._pool.submit(self._build, row)))
            if not waiting:
                return
            row, future = waiting.pop(0)
            yield row, self._measured(row, future.result(), plan, timed)

    def raced(
        self, rows: Sequence[int], plan: TimingPlan, rounds: int
    ) -> Iterator[tuple[int, Timed]]:
        """Each row with its samples of all rounds.

        All are built first. Each round has an order of its own.
        """
        libraries = {row: built for row in rows if isinstance(built := self._build(row), Library)}
        timed: dict[int, list[Timed]] = {row: [] for row in libraries}
        for round_number in range(rounds):
            for row in np.random.default_rng(round_number).permutation(list(libraries)).tolist():
                outcome = self._timed(row, libraries[row], plan)
                timed[row] += [outcome] if isinstance(outcome, Timed) else []
        for row, outcomes in timed.items():
            Path(libraries[row].path).unlink(missing_ok=True)
            if outcomes:
                yield (
                    row,
                    replace(
                        outcomes[-1],
                        samples_s=tuple(
                            sample
                            for outcome_of_round in outcomes
                            for sample in outcome_of_round.samples_s
                        ),
                    ),
                )

    def _build(self, row: int) -> Library | Failed:
        recording = self._recording
        config = None if row == DEFAULT_ROW else recording.space.config(recording.points[row])
        return self._compiler.build(recording.problem, BuildRequest(number=row + 1, config=config))

    def _measured(
        self, row: int, built: Library | Failed, plan: TimingPlan, timed: dict[str, Outcome]
    ) -> Outcome:
        if isinstance(built, Failed):
            return built
        if built.sha256 in timed:
            return timed[built.sha256]
        outcome = self._timed(row, built, plan)
        if isinstance(outcome, Timed):
            timed[built.sha256] = outcome
        Path(built.path).unlink(missing_ok=True)
        return outcome

    def _timed(self, row: int, built: Library, plan: TimingPlan) -> Outcome:
        request = Request(
            name=f"row {row}",
            library=built.path,
            symbol=built.symbol,
            timeout_s=20.0 if row != DEFAULT_ROW else 600.0,
            plan=plan,
            abandon_above_s=None
            if row == DEFAULT_ROW or self._best_s == float("inf")
            else self._best_s * ABANDON,
        )
        outcome: Outcome = self._runner.measure(request)
        for _ in range(ATTEMPTS - 1):
            if not (isinstance(outcome, Failed) and outcome.kind is FailureKind.INFRASTRUCTURE):
                break
            outcome = self._runner.measure(request)
        if isinstance(outcome, Timed):
            self._best_s = min(self._best_s, outcome.median_s)
        return outcome


def record(recording: Recording, *, progress_every_s: float = 10.0) -> bool:
    """Measure what the log lacks. Gives whether it is complete now."""
    logged, again = recording.log.load()
    measured = {row: outcome for row, outcome in logged.items() if not _lost(outcome)}
    rows = np.unique(recording.measured_as)
    # In random order, so that a drift of the machine falls on all alike.
    order = np.random.default_rng(0).permutation(rows).tolist()
    missing = [row for row in (DEFAULT_ROW, *order) if row not in measured][: recording.cut]
    started = said = time.monotonic()
    with ExitStack() as stack:
        bench = Bench(recording, stack)
        for count, (row, outcome) in enumerate(bench.outcomes(missing, SCREENING), 1):
            measured[row] = outcome
            recording.log.append(row, outcome)
            if time.monotonic() - said > progress_every_s:
                said = time.monotonic()
                left_s = (said - started) / count * (len(missing) - count)
                print(
                    f"{len(measured)} of {len(order) + 1} measured, {left_s:.0f} s to go",
                    flush=True,
                )
        if any(row not in measured for row in (DEFAULT_ROW, *order)):
            return False
        for row, outcome in bench.raced(
            sorted(_fastest(measured) - again), AGAIN_PLAN, AGAIN_ROUNDS
        ):
            recording.log.append(row, outcome, again=True)
    return True


def _fastest(measured: Mapping[int, Outcome]) -> set[int]:
    """The fastest rows, one for each code: what compiles to the same is timed once."""
    timed = {
        row: outcome
        for row, outcome in measured.items()
        if isinstance(outcome, Timed) and row != DEFAULT_ROW
    }
    order = sorted(timed, key=lambda row: timed[row].median_s)[: ceil(AGAIN_SHARE * len(timed))]
    return set({timed[row].artifact: row for row in reversed(order)}.values())


def _shared(measured: Mapping[int, Outcome], again: Set[int]) -> dict[int, Outcome]:
    """Give rows of the same code the same outcome.

    It is that of the longer timing where there was one.
    """
    last = {
        outcome.artifact: outcome
        for row in sorted(again)
        if isinstance(outcome := measured[row], Timed)
    }
    return {
        row: last.get(outcome.artifact, outcome) if isinstance(outcome, Timed) else outcome
        for row, outcome in measured.items()
    }


def _lost(outcome: Outcome) -> bool:
    return isinstance(outcome, Failed) and outcome.kind is FailureKind.INFRASTRUCTURE


def table_of(recording: Recording) -> RecordedTable:
    """The table of a complete log. Raises UsageError where the default schedule was not timed."""
    measured = _shared(*recording.log.load())
    default = measured[DEFAULT_ROW]
    if isinstance(default, Failed):
        raise UsageError(f"the default schedule failed: {default.kind}: {default.message}")
    outcomes = [measured[row] for row in recording.measured_as.tolist()]
    codes, median_s = outcome_codes(outcomes)
    problem = recording.problem
    samples = [len(outcome.samples_s) for outcome in outcomes if isinstance(outcome, Timed)]
    return RecordedTable(
        name=problem.workload.spec,
        workload=to_document(problem.workload),
        target=problem.target.name,
        space=recording.space,
        points=recording.points,
        outcomes=codes,
        median_s=median_s,
        default_median_s=default.median_s,
        notes={
            "date": datetime.now(UTC).date().isoformat(),
            "machine": problem.target.name,
            "target": json.dumps(target_to_document(problem.target), sort_keys=True),
            "threads": str(problem.threads),
            "samples": f"{min(samples)} to {max(samples)} samples a config, median "
            f"{int(np.median(samples))}; medians kept",
            "again": f"the fastest {AGAIN_SHARE:.0%} timed again, {AGAIN_ROUNDS} times "
            f"{AGAIN_PLAN.budget_s:g} s each",
            "version": __version__,
        },
    )


def main(arguments: Sequence[str] | None = None) -> None:
    cores = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "spec", nargs="+", help="workloads, such as matmul:M=128,N=128,K=128; a table for each"
    )
    parser.add_argument(
        "--configs",
        type=int,
        default=1600,
        help="descriptions of the sub-lattice, at least (default 1600)",
    )
    parser.add_argument(
        "--sampled", action="store_true", help="random configs of the whole space instead"
    )
    parser.add_argument(
        "--part", type=int, help="so many random ones of these descriptions, and no others"
    )
    parser.add_argument("--cut", type=int, help="stop after so many configs; the next call goes on")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--target", default="cpu", help="a declared CPU that this machine is, as cpu:x86-64-v3"
    )
    parser.add_argument("--name", help="of the table's file; default: from the spec")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("tests/tables"), help="folder of tables and logs"
    )
    parser.add_argument(
        "--cores", type=int, nargs=2, default=(cores[0], cores[-1]), metavar=("BUILD", "RUN")
    )
    given = parser.parse_args(arguments)
    target = parse_target(given.target)
    if is_declared(target) and not serves(detect_cpu(), target):
        raise UsageError(f"this machine is no {target.name}, so it can record no table for it")
    for spec in given.spec:
        recording = prepared(
            spec,
            configs=given.configs,
            sampled=given.sampled,
            part=given.part,
            threads=given.threads,
            folder=given.output,
            name=given.name,
            cores=given.cores,
            target=target,
        )
        described = len(np.unique(recording.measured_as))
        print(f"{spec}: {len(recording.points)} configs, {described} to measure", flush=True)
        if record(replace(recording, cut=given.cut)):
            path = recording.log.path.with_suffix(".npz")
            write_table(path, table_of(recording))
            recording.log.path.unlink()
            print(f"{path}: {path.stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    main()
