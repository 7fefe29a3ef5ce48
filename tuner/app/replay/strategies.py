"""Search strategies for recorded tables, by name.

These are the strategies of jobs, annealing warmed up by other tables (`transfer`), and
Optuna's TPE (`tpe`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import chain

from tuner.app.replay.tables import LOOP_NEST, features_of, past_of_table
from tuner.cost_model.history import Prior, TransferRanker, train_on
from tuner.cost_model.model import CostModel
from tuner.cost_model.ranker import Ranker
from tuner.errors import UsageError
from tuner.replay.comparison import SearcherFactory
from tuner.replay.table import RecordedTable
from tuner.search.searcher import Searcher
from tuner.search.seeds import carried_over, first_points
from tuner.search.setup import GuidedOptions, SearchSetup
from tuner.search.strategies import STRATEGIES, build_searcher
from tuner.spaces.core.space import Config, Points

TRANSFER, TPE = "transfer", "tpe"
NAMES = (*STRATEGIES, TRANSFER, TPE)
CARRIED = 2  # best configs of each other table that transfer tries first

# A table stands for a space that is too large to list, so it is explored, not listed.
OPTIONS = GuidedOptions(listed=0)


def factories(
    names: Sequence[str], tables: Sequence[RecordedTable]
) -> Mapping[str, SearcherFactory]:
    """A factory of searchers for each name.

    `transfer` is annealing warmed up by the other tables, as a job is by its history.
    Winners of tables with the same operator are carried over. Raises UsageError for an
    unknown name, for `tpe` without Optuna, and for `transfer` with a single table.
    """
    for name in names:
        if name not in NAMES:
            raise UsageError(f"unknown strategy {name!r}; strategies are {', '.join(NAMES)}")
    return {name: _factory(name, tables) for name in dict.fromkeys(names)}


def _factory(name: str, tables: Sequence[RecordedTable]) -> SearcherFactory:
    if name == TPE:
        return _tpe()
    if name == TRANSFER:
        return _transfer(tables)

    def build(table: RecordedTable, seed: int) -> Searcher:
        return build_searcher(name, _cold(table, seed))

    return build


def _cold(table: RecordedTable, seed: int) -> SearchSetup:
    """The setup of a job without a history.

    It starts from the estimate of cycles, where the table has the features for it.
    """
    if features_of(table) != LOOP_NEST:
        return _setup(table, Ranker(), seed, carried_over(table.space, ()))
    return _warm(table, Prior(), (), seed)


def _warm(table: RecordedTable, prior: Prior, winners: Sequence[Config], seed: int) -> SearchSetup:
    points = first_points(table.domain(), table.featurizer(), Prior(), winners, seed=seed)
    return _setup(table, TransferRanker(prior), seed, points)


def _setup(table: RecordedTable, model: CostModel, seed: int, seeds: Points) -> SearchSetup:
    return SearchSetup(
        domain=table.domain(),
        featurizer=table.featurizer(),
        model=model,
        seed=seed,
        seeds=seeds if len(seeds) else None,
        options=OPTIONS,
    )


def _transfer(tables: Sequence[RecordedTable]) -> SearcherFactory:
    if len(tables) < 2:
        raise UsageError("transfer learns from the other tables; give at least two")
    warmed: dict[str, SearcherFactory] = {}

    def build(table: RecordedTable, seed: int) -> Searcher:
        if table.name not in warmed:
            others = [other for other in tables if other.name != table.name]
            warmed[table.name] = warmed_by(others, table.workload.get("op"))
        return warmed[table.name](table, seed)

    return build


def warmed_by(history: Sequence[RecordedTable], op: str | None) -> SearcherFactory:
    """Annealing for a workload of the operator, warmed up by the tables of a history.

    They may be of other workloads, and of other machines.
    """
    prior = train_on([past_of_table(past) for past in history], op)
    alike = [past for past in history if past.workload.get("op") == op is not None]
    winners = list(chain.from_iterable(best_of(past, CARRIED) for past in alike))

    def build(table: RecordedTable, seed: int) -> Searcher:
        return build_searcher("annealing", _warm(table, prior, winners, seed))

    return build


def best_of(table: RecordedTable, count: int) -> list[Config]:
    """The configs of the table's fastest rows, the fastest first."""
    timed = table.points[table.outcomes == 0]
    return [table.space.config(timed[row]) for row in table.median_s.argsort(kind="stable")[:count]]


def _tpe() -> SearcherFactory:
    """Optuna's TPE. Optuna is an optional extra and slow to import, so it is loaded here."""
    if find_spec("optuna") is None:
        raise UsageError(
            "strategy tpe needs Optuna; install the extra: pip install 'tuner[compare]'"
        )
    searcher = import_module("tuner.app.replay.tpe").TpeSearcher

    def build(table: RecordedTable, seed: int) -> Searcher:
        built: Searcher = searcher(table.domain(), seed=seed)
        return built

    return build
