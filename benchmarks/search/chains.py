"""Compare how many annealing chains and steps a plan should have.

    python -m benchmarks.search.chains tests/tables/large/*.npz --layouts 1024x40+6 2048x20+3

A layout is chains x steps of the first plan + steps of later ones. Whole searches of
whole spaces are run. The machine of a table is a model of many trees that learned all of
it, so that each config of the whole space has a time, with 2% of noise. Searches start
like a job that has the other tables for a history.

Prints the best score among the first 16, 64 and 256 trials, in standard deviations of
random configs, and the CPU seconds of the search. All are means over the seeds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tuner.app.replay.tables import open_tables, past_of_table
from tuner.cost_model.features import featurizer
from tuner.cost_model.history import Past, Prior, TransferRanker, train_on
from tuner.cost_model.model import Features, Featurizer, Vector
from tuner.cost_model.ranker import Ranker, RankerOptions
from tuner.errors import UsageError
from tuner.measure.outcome import Conditions, Timed, Trial
from tuner.replay.table import RecordedTable
from tuner.search.annealing import Annealing, AnnealingOptions
from tuner.search.domain import Domain
from tuner.search.guided import GuidedSearcher
from tuner.search.seeds import first_points
from tuner.spaces.by_target import cpu_space
from tuner.target.document import target_from_document
from tuner.workload.spec import from_document

MACHINE = RankerOptions(rounds=300, depth=6)  # learns a table by heart, as well as trees can
REPORTED = (16, 64, 256)  # trials after which the best is told
IN_FLIGHT = 4
REFERENCE = 1024  # random configs whose scores set the scale
NOISE = 0.02  # of a time
SPREAD = 0.25  # of a time's logarithm, for a standard deviation of the scores
CONDITIONS = Conditions(lane="simulated", isolation="none")


@dataclass(frozen=True, kw_only=True)
class Course:
    domain: Domain
    describe: Featurizer
    prior: Prior  # of the other tables
    machine: Ranker
    mean: float
    deviation: float

    def standing(self, features: Features) -> Vector:
        """How good the machine finds configs, in standard deviations of random ones, shape (n,)."""
        scores: Vector = (self.machine.predict(features) - self.mean) / self.deviation
        return scores


def course(table: RecordedTable, past: Past, others: Sequence[Past]) -> Course:
    target = target_from_document(json.loads(table.notes["target"]))
    space = cpu_space(from_document(table.workload), target, int(table.notes["threads"]))
    describe, domain = featurizer(space), Domain(space.space)
    timed = past.labels > 0
    machine = Ranker(MACHINE)
    machine.fit(past.features[timed], past.labels[timed], np.zeros(int(timed.sum()), np.int64))
    usual = machine.predict(describe(domain.sample(np.random.default_rng(0), REFERENCE)))
    return Course(
        domain=domain,
        describe=describe,
        prior=train_on(others, past.op),
        machine=machine,
        mean=float(usual.mean()),
        deviation=float(usual.std()),
    )


def run(course: Course, options: AnnealingOptions, seed: int) -> tuple[list[float], float]:
    """Run one search.

    Gives the best among the first trials, for each number that is reported, and the CPU
    seconds of the search.
    """
    started, answering_s = time.process_time(), 0.0
    searcher = GuidedSearcher(
        domain=course.domain,
        featurizer=course.describe,
        model=TransferRanker(course.prior),
        explorer=Annealing(options),
        seed=seed,
        seeds=first_points(course.domain, course.describe, course.prior, (), seed=seed),
    )
    rng, scores = np.random.default_rng(seed), list[float]()
    while len(scores) < REPORTED[-1]:
        points = searcher.ask(IN_FLIGHT)
        asked = time.process_time()
        standing = course.standing(course.describe(points))
        times = np.exp(-SPREAD * standing) * np.exp(NOISE * rng.standard_normal(len(points)))
        trials = [
            Trial(
                number=len(scores) + place,
                config=course.domain.space.config(point),
                outcome=Timed(
                    samples_s=(float(seconds),),
                    max_rel_error=0.0,
                    conditions=CONDITIONS,
                    artifact="0" * 64,
                ),
            )
            for place, (point, seconds) in enumerate(zip(points, times, strict=True), 1)
        ]
        answering_s += time.process_time() - asked
        searcher.tell(trials)
        scores += standing.tolist()
    return [
        max(scores[:trials]) for trials in REPORTED
    ], time.process_time() - started - answering_s


def layout(text: str) -> AnnealingOptions:
    try:
        chains, steps = text.split("x")
        first, later = steps.split("+")
        return AnnealingOptions(chains=int(chains), steps=int(first), resumed=int(later))
    except ValueError:
        raise UsageError(f"layout {text!r} is not CHAINSxSTEPS+LATER, such as 2048x20+3") from None


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--layouts", nargs="+", default=["1024x40+6", "2048x20+3"])
    parser.add_argument("--seeds", type=int, default=8)
    given = parser.parse_args(arguments)
    try:
        layouts = {text: layout(text) for text in given.layouts}
        tables = open_tables(given.tables)
    except UsageError as error:
        parser.error(str(error))
    pasts = [past_of_table(table) for table in tables]
    print(f"{'table':48} {' '.join(f'{name:>24}' for name in layouts)}")
    rows: list[list[list[float]]] = []
    for place, table in enumerate(tables):
        table_course = course(table, pasts[place], [*pasts[:place], *pasts[place + 1 :]])
        rows.append([])
        for options in layouts.values():
            runs = [run(table_course, options, seed) for seed in range(given.seeds)]
            rows[-1].append(
                [
                    *np.mean([best for best, _ in runs], axis=0),
                    float(np.mean([seconds for _, seconds in runs])),
                ]
            )
        print(f"{table.name[:48]:48} {_line(rows[-1])}", flush=True)
    print(f"{'mean':48} {_line(np.mean(rows, axis=0).tolist())}")


def _line(cells: Sequence[Sequence[float]]) -> str:
    return " ".join(
        f"{few:6.3f}{more:6.3f}{all_:6.3f}{seconds:5.2f}s" for few, more, all_, seconds in cells
    )


if __name__ == "__main__":
    main()
