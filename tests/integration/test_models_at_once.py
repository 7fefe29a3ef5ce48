"""Two users tune one model over REST at the same time: both get a right library, within budgets of
their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.model_home import ModelHome

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(400)]

FEW, MANY = 4, 12  # trials for each kernel, of the one user and of the other


@pytest.fixture
def home(tmp_path: Path) -> Iterator[ModelHome]:
    made = ModelHome(tmp_path)
    yield made
    made.close()


def test_over_rest(home: ModelHome) -> None:
    with home.served() as service:
        submitted = [
            service.submit(trials=FEW, seconds=30),
            service.submit(trials=MANY, seconds=60),
        ]
        for job in submitted:
            service.succeeded(job)
            service.assert_right(job)
            assert service.trials(job)
    home.assert_kept(*submitted)
    home.assert_nothing_is_left()
