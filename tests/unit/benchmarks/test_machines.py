"""What the history of one machine saves a search on another, on recorded tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.search.machines import transfers
from tuner.app.replay.tables import with_features
from tuner.errors import UsageError
from tuner.replay.table import RecordedTable, read_table
from tuner.search.seeds import MOST_SEEDS

TABLE = Path("tests/tables/parts/matmul_M_24_N_512_K_768.npz")


@pytest.fixture(scope="module")
def table() -> RecordedTable:
    return with_features(read_table(Path(__file__).parents[3] / TABLE))


@pytest.mark.slow
def test_what_was_fastest_elsewhere_is_tried_at_once(table: RecordedTable) -> None:
    """A machine with the same times: the best config there is the best here."""
    here = next(transfers([table, replace(table, target="twin")], seeds=1))
    assert (here.table.target, here.history) == (table.target, "twin")
    assert here.warmed[0] <= MOST_SEEDS


def test_tables_of_one_target_are_refused(table: RecordedTable) -> None:
    with pytest.raises(UsageError, match="give those of two targets"):
        list(transfers([table, replace(table, name="other")], seeds=1))
