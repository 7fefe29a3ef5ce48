"""Two users tune one model over REST at the same time: both get a right library, within budgets of
their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.model_home import ModelHome
from tuner.db import jobs, schema
from tuner.db.engine import open_database

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(400)]

FEW, MANY = 4, 12  # trials for each kernel, of the one user and of the other


@pytest.fixture
def home(tmp_path: Path) -> Iterator[ModelHome]:
    made = ModelHome(tmp_path)
    yield made
    made.close()


def assert_kept(home: ModelHome, expected: int) -> None:
    """So many jobs succeeded, each with no more trials than its own budget has."""
    database = open_database(home.environment["TUNER_DB"])
    with database.read() as session:
        listed = jobs.list_page(session).items
    assert schema.check(database.engine) == []
    database.close()
    assert [job.state for job in listed] == [jobs.SUCCEEDED] * expected
    for job in listed:
        spent = sum(task.trials_done for task in job.tasks)
        assert 0 < spent <= job.trials * len(job.tasks)
        assert all(task.kernel for task in job.tasks)


def test_over_rest(home: ModelHome) -> None:
    with home.served() as service:
        submitted = [
            service.submit(trials=FEW, seconds=30),
            service.submit(trials=MANY, seconds=60),
        ]
        for job in submitted:
            service.succeeded(job)
            service.assert_right(job)
    assert_kept(home, 2)
    home.assert_nothing_is_left()
