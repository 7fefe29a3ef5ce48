"""A database and settings of a folder of the test's own; files with others state theirs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.databases import new_database
from tuner.db.engine import Database
from tuner.settings import Settings, load_settings


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = new_database(tmp_path / "models.db")
    yield opened
    opened.close()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    given = {"data_dir": str(tmp_path), "threads": 1, "trials": 2}
    return load_settings(given, given_as="argument {}").values
