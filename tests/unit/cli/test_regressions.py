"""`tuner regressions` on a database: what was lost, and the races that say so."""

from __future__ import annotations

from pathlib import Path

from tests.support.command import Tuner
from tests.support.overtaken import overtaken
from tuner.db.engine import open_database


def test_losses_and_races_are_listed(tuner: Tuner, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/other.sqlite"
    database = open_database(url)
    kernel = overtaken(database)
    database.close()
    listed = tuner("regressions", "--db", url, "--json").document
    assert [each["kernel"] for each in listed["items"]] == [kernel] and listed["next"] is None
    table = tuner("regressions", "--db", url)
    assert table.code == 0 and "overtaken" in table.out and "torch 2<b>" in table.out
    shown = tuner("regressions", kernel, "--db", url)
    assert shown.code == 0 and "torch 1: 1.50×" in shown.out
    assert len(tuner("regressions", kernel, "--db", url, "--json").document["items"]) == 7
    assert tuner("regressions", "k_none", "--db", url).code == 2


def test_nothing_lost_is_said(tuner: Tuner) -> None:
    called = tuner("regressions")
    assert called.code == 0 and "no promoted kernel is known to have lost anything" in called.err
