"""The databases that contracts are run on: an SQLite file and one of a PostgreSQL
server, with a clock that tests move."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.database_samples import ManualClock
from tests.support.databases import postgres_database, sqlite_database
from tuner.db.engine import Database, open_database


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> Iterator[Database]:
    url = (
        sqlite_database(tmp_path / "tuner.sqlite")
        if request.param == "sqlite"
        else postgres_database(request.getfixturevalue("postgres_server"))
    )
    opened = open_database(url, clock=clock)
    yield opened
    opened.close()
