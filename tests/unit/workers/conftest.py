"""An empty database whose clock tests turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.database_samples import ManualClock
from tests.support.databases import new_database
from tuner.db.engine import Database


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def database(tmp_path: Path, clock: ManualClock) -> Iterator[Database]:
    opened = new_database(tmp_path / "tuner.db", clock=clock)
    yield opened
    opened.close()
