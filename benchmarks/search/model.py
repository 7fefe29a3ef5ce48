"""Measure how well the features rank a workload that the model has never seen.

    python -m benchmarks.search.model tests/tables/large/*.npz --known tests/tables/parts/*.npz

Each table is left out in turn. The model learns the other tables and those of `--known`.
Prints for each table:

- the pairwise accuracy among valid pairs at least 5% apart, and recall@30
- the same from 64 random configs of the table itself, as a search has them early on
- candidates per second of CPU time that are described and scored: in an annealing step,
  by the model of the others and what it learned of so many configs, and in a batch

Configs of one description count as one, as in a search.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tuner.app.replay.tables import open_tables, past_of_table
from tuner.cost_model.features import BATCH, FEATURE_VERSION, featurizer
from tuner.cost_model.history import Past, TransferRanker, train_on
from tuner.cost_model.metrics import pairwise_accuracy, recall_at
from tuner.cost_model.ranker import Ranker
from tuner.replay.table import RecordedTable
from tuner.search.annealing import AnnealingOptions
from tuner.spaces.by_target import cpu_space
from tuner.target.document import target_from_document
from tuner.workload.spec import from_document

LOCAL, DRAWS = 64, 9  # random configs of the table itself, and how often they are drawn
BATCHES = 32  # whose median time gives a rate


@dataclass(frozen=True, kw_only=True)
class Figures:
    table: str
    timed: int  # descriptions
    pairwise: float  # leaving this table out
    recall30: float
    local_pairwise: float  # from LOCAL random configs of its own, median of DRAWS
    local_recall30: float
    # An annealing step at a time, and as many as are described at once.
    candidates_per_s: tuple[float, float]


def figures(tables: Sequence[RecordedTable], others: Sequence[RecordedTable] = ()) -> list[Figures]:
    """The figures of each of `tables`.

    Raises UsageError for tables of spaces that no longer exist.
    """
    pasts = [described_once(past_of_table(table)) for table in (*tables, *others)]
    return [
        _figures(table, pasts[place], [*pasts[:place], *pasts[place + 1 :]])
        for place, table in enumerate(tables)
    ]


def described_once(past: Past) -> Past:
    """Each description of what was timed once, with the median of its labels."""
    timed = past.labels > 0
    features, which = np.unique(past.features[timed], axis=0, return_inverse=True)
    labels = past.labels[timed]
    medians = [np.median(labels[which.ravel() == number]) for number in range(len(features))]
    return replace(past, features=features, labels=np.array(medians, np.float32))


def _figures(table: RecordedTable, past: Past, others: Sequence[Past]) -> Figures:
    prior = train_on(others, past.op)
    scores = prior.predict(past.features)
    model = TransferRanker(prior)
    model.fit(past.features[:LOCAL], past.labels[:LOCAL], np.zeros(LOCAL, np.int64))
    local = [_local(past, seed) for seed in range(DRAWS)]
    return Figures(
        table=table.name,
        timed=len(past.labels),
        pairwise=pairwise_accuracy(scores, past.labels),
        recall30=recall_at(30, scores, past.labels),
        local_pairwise=float(np.median([pairwise for pairwise, _ in local])),
        local_recall30=float(np.median([recall for _, recall in local])),
        candidates_per_s=(
            _rate(table, model, AnnealingOptions().chains),
            _rate(table, model, BATCH),
        ),
    )


def _local(past: Past, seed: int) -> tuple[float, float]:
    chosen = np.random.default_rng(seed).permutation(len(past.labels))[:LOCAL]
    model = Ranker()
    model.fit(past.features[chosen], past.labels[chosen], np.zeros(len(chosen), np.int64))
    scores = model.predict(past.features)
    return pairwise_accuracy(scores, past.labels), recall_at(30, scores, past.labels)


def _rate(table: RecordedTable, model: TransferRanker, count: int) -> float:
    target = target_from_document(json.loads(table.notes["target"]))
    space = cpu_space(from_document(table.workload), target, int(table.notes["threads"]))
    describe, rng = featurizer(space), np.random.default_rng(0)
    seconds = []
    for _ in range(BATCHES):
        points = space.space.sample(rng, count)
        started = time.process_time()
        model.predict(describe(points))
        seconds.append(time.process_time() - started)
    return count / float(np.median(seconds))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument(
        "--known", nargs="*", type=Path, default=(), help="tables that teach and are not judged"
    )
    given = parser.parse_args(arguments)
    print(f"features version {FEATURE_VERSION}")
    judged = f"{'pairs':>6} {'r@30':>6}"
    print(
        f"{'table':56} {'timed':>6} {judged} {'own 64':>7} {'r@30':>6} {'step/s':>8} {'batch/s':>8}"
    )
    opened = open_tables([*given.tables, *given.known])
    rows = figures(opened[: len(given.tables)], opened[len(given.tables) :])
    for row in rows:
        print(
            f"{row.table[:56]:56} {row.timed:6} {row.pairwise:6.3f} {row.recall30:6.3f} "
            f"{row.local_pairwise:7.3f} "
            f"{row.local_recall30:6.3f} {' '.join(f'{rate:8.0f}' for rate in row.candidates_per_s)}"
        )
    pairs, recalls = (
        float(np.mean([getattr(row, name) for row in rows])) for name in ("pairwise", "recall30")
    )
    print(f"{'mean of the tables left out':63} {pairs:6.3f} {recalls:6.3f}")


if __name__ == "__main__":
    main()
