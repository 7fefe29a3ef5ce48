"""`tuner best --canaries`, `promote` and `rollback` on a database."""

from __future__ import annotations

from pathlib import Path

from tests.support.canaries import champion_and_canary
from tests.support.command import Tuner
from tuner.db.engine import open_database


def test_a_canary_is_listed_promoted_and_taken_back(tuner: Tuner, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/other.sqlite"
    database = open_database(url)
    champion, canary = champion_and_canary(database)
    database.close()

    def best(*options: str) -> list[str]:
        items = tuner("best", *options, "--db", url, "--json").document["items"]
        return [kernel["id"] for kernel in items]

    assert (best(), best("--canaries")) == ([champion], [canary])
    called = tuner("promote", canary, "--db", url)
    assert called.code == 0 and f"is promoted in place of {champion}" in called.out
    assert (best(), best("--canaries")) == ([canary], [])
    assert tuner("rollback", canary, "--db", url).code == 0 and best() == [champion]
    again = tuner("promote", canary, "--db", url)
    assert again.code != 0 and "only a canary can be promoted" in again.err
