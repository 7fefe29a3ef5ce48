"""Two orchestrators on one PostgreSQL: each job is done once; those of a killed one go
on elsewhere after their last trial."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.orchestrators import share
from tuner.workers.jobs.options import RUNNING_JOBS

pytestmark = [
    pytest.mark.long,
    pytest.mark.postgres,
    pytest.mark.xdist_group("fleet"),
    pytest.mark.timeout(2000),
]

JOBS = 50


def test_a_killed_orchestrators_jobs_go_on_elsewhere(postgres_url: str, tmp_path: Path) -> None:
    shared = share(postgres_url, tmp_path, count=JOBS, budget=3, orchestrators=2, timeout_s=1800)
    assert shared.faults == []
    assert shared.states == {"succeeded": JOBS}
    assert set(shared.owners) == {"orchestrator-0", "orchestrator-1"}
    assert 1 <= len(shared.taken_over) <= RUNNING_JOBS and sum(
        shared.owners.values()
    ) == JOBS + len(shared.taken_over)
