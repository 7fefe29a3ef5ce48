"""`tuner serve` with its workers killed twenty times under clients: nothing
acknowledged is lost or done twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.service_kills import work

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(2400)]

CYCLES = 20


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def test_nothing_acknowledged_is_lost(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    url = (
        f"sqlite:///{tmp_path}/tuner.sqlite"
        if kind == "sqlite"
        else str(request.getfixturevalue("postgres_url"))
    )
    counted = work(url, tmp_path, cycles=CYCLES, seconds=float("inf"), every=5, seed=20261120)
    assert counted["faults"] == []
    assert (counted["cycles"], counted["measuring_cycles"], counted["measuring_in_vain"]) == (
        CYCLES,
        CYCLES // 5,
        0,
    )
