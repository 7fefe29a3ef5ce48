"""A full disk and a restarted database server under a model's job: a clear reason where it cannot
go on, and a right library once the trouble is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.model_home import Document, ModelHome
from tests.support.postgres import PostgresServer
from tests.support.small_disk import empty, fill_up, small_disk

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(400)]

TRIALS, SECONDS = 8, 60


def searching(job: Document) -> bool:
    return bool(sum(task["trials_done"] for task in job["tasks"]) >= 4)


def linking(job: Document) -> bool:
    return bool(job["tasks"]) and all(task["state"] == "succeeded" for task in job["tasks"])


def test_a_disk_that_is_full_when_the_library_is_written(tmp_path: Path) -> None:
    with small_disk(tmp_path / "artifacts", megabytes=64) as disk:
        home = ModelHome(tmp_path, artifacts=disk)
        with home.served() as service:
            job = service.submit(trials=TRIALS, seconds=SECONDS)
            service.wait(job, linking)
            fill_up(disk, leave_bytes=0)
            failed = service.wait(job, lambda job: False)
            assert failed["state"] == "failed"
            assert "No space left on device" in failed["error"]
            assert "internal error" not in failed["error"]
            assert list(disk.glob("??/.partial-*")) == []
            empty(disk)
            assert service.http.post(f"/jobs/{job}/resume").status_code == 200
            service.succeeded(job)
            assert len(service.trials(job)) <= TRIALS * len(failed["tasks"])
            service.assert_right(job)
        home.assert_nothing_is_left()
        home.close()


@pytest.mark.postgres
def test_a_database_server_that_is_restarted(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    home = ModelHome(tmp_path, url=postgres_server.new_database())
    with home.served() as service:
        job = service.submit(trials=TRIALS, seconds=SECONDS)
        service.wait(job, searching)
        recorded = service.trials(job)
        postgres_server.stop()
        postgres_server.start()
        service.succeeded(job)
        now = service.trials(job)
        assert {key: now.get(key) for key in recorded} == recorded
        service.assert_right(job)
    home.assert_nothing_is_left()
    home.close()
