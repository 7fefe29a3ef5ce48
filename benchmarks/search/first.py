"""What the first candidates of a search are worth, and how well their bounds hold.

    python -m benchmarks.search.first tests/tables/large/*.npz tests/tables/parts/*.npz
    python -m benchmarks.search.first sqlite:///FILE

Prints for each workload the best of the first 1, 4 and 8 candidates as a share of the best
known, and how far the worst of four seeds is from it after 64. Then each workload is left
out of what the bounds learn from: the share of those that keep theirs, and half of the
workloads' regret.

A database gives the searches of its newest target with one thread that had 64 trials or
more; there the seeds are left out. With `--write FILE`, the curves of tables become the
file that targets without searches of their own are answered from.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tuner.app.replay.strategies import factories
from tuner.app.replay.tables import open_tables
from tuner.db import history, targets
from tuner.db.engine import open_database
from tuner.replay.comparison import best_so_far
from tuner.replay.table import RecordedTable
from tuner.search.regret import HORIZON, LEAST, TAUGHT_BY, Curve, RegretBounds, regret_curve
from tuner.search.strategies import DEFAULT_STRATEGY

FIRST = (1, 4, 8)
SEEDS = 4
DIGITS = 4  # of the numbers in the file


def of_tables(tables: Sequence[RecordedTable], seed: int = 0) -> dict[str, Curve]:
    """The curve of a search of each table, without a history."""
    factory = factories([DEFAULT_STRATEGY], tables)[DEFAULT_STRATEGY]
    return {
        table.name: regret_curve(
            list(best_so_far(table, factory(table, seed), HORIZON)), table.optimum_s
        )
        for table in tables
    }


def worst_of_seeds(tables: Sequence[RecordedTable]) -> dict[str, float]:
    """The regret of the worst seed after as many candidates as teach a bound."""
    factory = factories([DEFAULT_STRATEGY], tables)[DEFAULT_STRATEGY]
    worst = {}
    for table in tables:
        budget = min(TAUGHT_BY, len(table.points))
        ends = [list(best_so_far(table, factory(table, seed), budget))[-1] for seed in range(SEEDS)]
        worst[table.name] = max(
            np.inf if end is None else end / table.optimum_s - 1.0 for end in ends
        )
    return worst


def of_database(url: str) -> dict[str, Curve]:
    """The curve of the newest search of each workload, for one thread."""
    with open_database(url, create=False).read() as session:
        target = targets.list_all(session)[-1]
        searches = history.searches_on(session, target.key, 1, least=TAUGHT_BY, first=HORIZON)
    return {search.spec: regret_curve(search.seconds, search.best_s) for search in searches}


def coverage(curves: Sequence[Curve], candidates: int) -> tuple[float, float, float]:
    """Of curves each left out: share within the bound, half's regret, and half's bound."""
    bounds = [
        RegretBounds([*curves[:place], *curves[place + 1 :]]).after(candidates)
        for place in range(len(curves))
    ]
    within = np.array([bound.within for bound in bounds if bound is not None])
    true = np.array([curve[candidates - 1] for curve in curves])
    return float(np.mean(true <= within)), float(np.median(true)), float(np.median(within))


def report(curves: Mapping[str, Curve], worst: Mapping[str, float]) -> None:
    heads = "".join(f"{f'first {count}':>9}" for count in FIRST)
    print(f"{'share of the best known':72}{heads}{'worst seed':>12}")
    for name, curve in curves.items():
        shares = "".join(f"{1 / (1 + curve[count - 1]):9.3f}" for count in FIRST)
        print(f"{name[:70]:72}{shares}{f'+{worst[name]:.1%}' if name in worst else '—':>12}")
    if len(curves) <= LEAST:
        print(f"{len(curves)} searches; bounds are judged from {LEAST + 1} on")
        return
    for count in FIRST:
        kept, half, bound = coverage(list(curves.values()), count)
        print(
            f"first {count}, each of {len(curves)} left out: {kept:.0%} keep their bound, half "
            f"are within {half:.1%}, half of the bounds are {bound:.1%} or less"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sources", nargs="+", help="tables, or the URL of a database")
    parser.add_argument("--write", type=Path, metavar="FILE", help="also writes the curves")
    given = parser.parse_args(arguments)
    if "://" in given.sources[0]:
        report(of_database(given.sources[0]), {})
        return
    tables = open_tables([Path(source) for source in given.sources])
    curves = of_tables(tables)
    if given.write is not None:
        given.write.write_text(document_of(tables, curves), encoding="utf-8")
    report(curves, worst_of_seeds(tables))


def document_of(tables: Sequence[RecordedTable], curves: Mapping[str, Curve]) -> str:
    """The file of recorded curves; a line for each."""
    machines = sorted({table.target for table in tables})
    rounded = {name: [round(value, DIGITS) for value in curve] for name, curve in curves.items()}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rounded.items())
    return f'{{"machines": {json.dumps(machines)}, "curves": {{\n{lines}\n}}}}\n'


if __name__ == "__main__":
    main()
