"""The table of search strategies.

Everything that offers a choice of strategy reads it: the settings, the command line, REST,
the dashboard and the client. To add one, see docs/how-to/add-a-strategy.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.search.searcher import Searcher
    from tuner.search.setup import SearchSetup


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """One row of the table."""

    # "module:function". The function makes a `Searcher` of a `SearchSetup`. It is named and
    # not imported, because every command reads the table to print its help.
    searcher: str
    # whether it has a cost model, which the history of similar workloads can warm up
    learns: bool


STRATEGIES: Mapping[str, Strategy] = {
    "annealing": Strategy(searcher="tuner.search.annealing:annealing_searcher", learns=True),
    "evolutionary": Strategy(
        searcher="tuner.search.evolutionary:evolutionary_searcher", learns=True
    ),
    "random": Strategy(searcher="tuner.search.random:random_searcher", learns=False),
    "grid": Strategy(searcher="tuner.search.grid:grid_searcher", learns=False),
}
DEFAULT_STRATEGY = "annealing"
LEARNING = frozenset(name for name, strategy in STRATEGIES.items() if strategy.learns)

EXTERNAL = "external"  # of jobs over REST whose configs a caller proposes: tuner.search.external

# A key of the table; of a job also the above. Validated at run time by whoever reads
# annotations, as Pydantic does.
if TYPE_CHECKING:
    StrategyName = str
    JobStrategy = str
else:
    StrategyName = Literal[tuple(STRATEGIES)]
    JobStrategy = Literal[EXTERNAL, *STRATEGIES]


def build_searcher(strategy: str, setup: SearchSetup) -> Searcher:
    """A new searcher of the strategy with this name. Raises UsageError for an unknown name."""
    if strategy not in STRATEGIES:
        raise UsageError(f"unknown strategy {strategy!r}; it is one of {', '.join(STRATEGIES)}")
    module, _, function = STRATEGIES[strategy].searcher.partition(":")
    build: Callable[[SearchSetup], Searcher] = getattr(import_module(module), function)
    return build(setup)


def strategy_choices() -> str:
    """The names as a sentence has them: `annealing, evolutionary, random or grid`."""
    *others, last = STRATEGIES
    return f"{', '.join(others)} or {last}"
