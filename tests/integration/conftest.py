"""The databases that services are tried with: an SQLite file and one of a PostgreSQL server."""

from __future__ import annotations

import pytest


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)], scope="module"
)
def service_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of an empty database for a file of tests."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('database')}/tuner.sqlite"
    return str(request.getfixturevalue("postgres_server").new_database())
