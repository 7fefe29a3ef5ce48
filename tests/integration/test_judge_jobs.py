"""Foreign kernels judged by jobs on a real fleet, in turn with what the database has."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.fleet_job import FOREIGN_KERNEL, QUICK, open_in, queue_foreign
from tests.support.targets import host_target
from tuner.db import events, jobs, tasks
from tuner.db.engine import Database
from tuner.workers.jobs.orchestrator import Orchestrator, OrchestratorOptions, run_job

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(170)]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_in(tmp_path)
    yield opened
    opened.close()


def served(database: Database, folder: Path, job_ids: Sequence[str]) -> list[jobs.Job]:
    """The jobs after an orchestrator has run them, on one fleet."""
    options = OrchestratorOptions(artifacts=folder / "artifacts", limits=QUICK, running_jobs=1)
    stop = threading.Event()
    orchestrator = Orchestrator(database, host_target(), options)
    thread = threading.Thread(target=orchestrator.serve, args=(stop,))
    thread.start()
    try:
        while True:
            with database.read() as session:
                ended = [jobs.get(session, job_id) for job_id in job_ids]
            if all(job.state in jobs.FINISHED for job in ended) or not thread.is_alive():
                return ended
            time.sleep(0.1)
    finally:
        stop.set()
        thread.join()


def test_verdicts_of_jobs(database: Database, tmp_path: Path) -> None:
    """One of a right kernel beside the default schedule, one of a wrong kernel, one beside
    the kernel that a search in between found."""
    sources = (FOREIGN_KERNEL, FOREIGN_KERNEL.replace("return 0;", "y[50] = -1; return 0;"))
    right, wrong = (queue_foreign(database, tmp_path, source) for source in sources)
    tuned = queue_foreign(database, tmp_path, "", kind=jobs.TUNE)
    again = queue_foreign(database, tmp_path, FOREIGN_KERNEL)
    ended = served(database, tmp_path, (right, wrong, tuned, again))
    assert [(job.state, job.error) for job in ended] == 4 * [(jobs.SUCCEEDED, None)]
    first, second, third = (ended[place].settings[tasks.VERDICT] for place in (0, 1, 3))
    assert (first["verdict"], first["element"], first["max_rel_error"]) == ("verified", None, 0)
    assert first["time"]["rival"] == "default"
    assert first["time"]["median_s"] > 0 < first["time"]["ratio"]
    assert (second["verdict"], second["element"]["index"], second["time"]) == (
        "wrong_element",
        [1, 2],
        None,
    )
    assert third["time"]["rival"] == "incumbent"
    with database.read() as session:
        kinds = [event.kind for event in events.after(session, right, 0)]
    assert kinds.count("verdict") == 1


def test_a_job_of_before_the_switch_was_set_off_compiles_nothing(
    database: Database, tmp_path: Path
) -> None:
    job_id = queue_foreign(database, tmp_path, FOREIGN_KERNEL)
    options = OrchestratorOptions(artifacts=tmp_path / "artifacts", limits=QUICK, judges=False)
    report = run_job(database, job_id, options)
    assert report.job.state == jobs.FAILED and report.job.error is not None
    assert "compiles nobody's sources any more; resume the job once" in report.job.error
