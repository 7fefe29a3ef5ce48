"""A model tuned, cancelled and exported while others work on the same database: commands and jobs
over REST end with a right library each, or say clearly why not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import onnx_networks as nets
from tests.support.fleet_job import QUICK, open_in
from tests.support.model_home import Document, ModelHome, Served
from tests.support.promoted_models import promote_defaults, replaced_often
from tests.support.targets import host_target
from tuner.app.export.exporters import LibraryRequest, export_library_of
from tuner.app.export.kernels import all_kernels
from tuner.app.export.verdicts import Retimed
from tuner.app.export.verify import verify_export
from tuner.app.models.command_time import CommandTime
from tuner.app.models.tuned_model import export_model
from tuner.db import artifacts, jobs, targets, tasks
from tuner.db.engine import Database
from tuner.export.artifacts import ArtifactStore
from tuner.export.manifest import verify_hashes
from tuner.models.importer import import_model
from tuner.settings import Settings, load_settings
from tuner.workers.jobs.model_library import Model
from tuner.workers.jobs.options import Interruption, OrchestratorOptions
from tuner.workers.jobs.orchestrator import run_job

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(300)]

FEW = 2  # trials for each kernel
SIZES = (24, 10)  # of the layers: two kernels
EXPORTING_S = 6.0


@pytest.fixture
def home(tmp_path: Path) -> Iterator[ModelHome]:
    made = ModelHome(tmp_path, sizes=SIZES)
    yield made
    made.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service for all tests; at its end nothing is left of what they did."""
    home = ModelHome(tmp_path_factory.mktemp("service"), sizes=SIZES)
    with home.served() as served:
        yield served
    home.assert_nothing_is_left()
    home.close()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_in(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    given = {"data_dir": str(tmp_path), "threads": 1}
    return load_settings(given, given_as="argument {}").values


@pytest.fixture
def model() -> Model:
    content = nets.serialized(nets.perceptron(sizes=SIZES))
    return Model(content=content, shapes={}, graph=import_model(content))


def searching(job: Document) -> bool:
    return bool(sum(task["trials_done"] for task in job["tasks"]) >= 2)


def promoting(job: Document) -> bool:
    return any(task["kernel"] for task in job["tasks"])


@pytest.mark.long
def test_two_commands_begin_at_once_on_a_new_database(home: ModelHome) -> None:
    directories = [home.folder / "first", home.folder / "second"]
    budget = ("--trials", str(FEW), "--seconds", "40")
    processes = [home.tune(directory, *budget) for directory in directories]
    while any(process.poll() is None for process in processes):
        for process in processes:
            home.watch(process)
        time.sleep(0.1)
    for process, directory in zip(processes, directories, strict=True):
        home.ended(process, directory.with_suffix(".log"))
        home.assert_exported(directory)
    home.assert_kept()
    home.assert_nothing_is_left()


@pytest.mark.long
def test_a_command_beside_two_equal_jobs_over_rest(service: Served) -> None:
    home, directory = service.home, service.home.folder / "beside"
    submitted = [service.submit(trials=FEW, seconds=40) for _ in range(2)]
    process = home.tune(directory, "--trials", str(FEW), "--seconds", "40")
    for job in submitted:
        service.succeeded(job)
        service.assert_right(job)
    first, second = submitted  # which searches nothing again
    assert service.trials(first) and not service.trials(second)
    home.ended(process, directory.with_suffix(".log"))
    home.assert_exported(directory)
    home.assert_kept(*submitted)


def test_a_job_that_is_cancelled_over_rest_keeps_what_it_has(service: Served) -> None:
    job = service.submit(trials=12, seconds=60)
    for moment in (searching, promoting):
        before = service.wait(job, moment)
        assert before["state"] == "running", "it ended before it could be cancelled"
        recorded = service.trials(job)
        answer = service.http.post(f"/jobs/{job}/cancel")
        assert answer.status_code == 200, answer.text
        ended = service.wait(job, lambda document: False)
        assert (ended["state"], ended["error"]) == ("cancelled", None)
        assert recorded.items() <= service.trials(job).items()
        for task, was in zip(ended["tasks"], before["tasks"], strict=True):
            assert was["kernel"] in (None, task["kernel"])
        assert service.http.get(f"/models/{job}/library").status_code == 404
        assert service.http.post(f"/jobs/{job}/resume").status_code == 200
    service.succeeded(job)
    assert recorded.items() <= service.trials(job).items()
    service.assert_right(job)
    service.home.assert_kept(job)


def test_a_job_that_is_to_stop_makes_no_library(
    database: Database, settings: Settings, model: Model
) -> None:
    """All its kernels are there when it is cancelled; resumed, it makes the library of them."""
    promote_defaults(database, model, settings)
    digest = ArtifactStore(settings.artifacts).put(model.content)
    with database.write() as session:
        artifacts.remember(session, sha256=digest, size_bytes=len(model.content), kind="model")
        new = jobs.NewJob(
            workloads=(),
            target=targets.remember(session, host_target()),
            threads=1,
            trials=1,
            kind=jobs.MODEL,
            settings={tasks.MODEL: digest, "improve": False},
        )
        job, _ = jobs.create(session, new)
    options = OrchestratorOptions(artifacts=settings.artifacts, limits=QUICK)
    stopped = run_job(database, job.id, options, interrupt=lambda: Interruption.CANCEL).job
    assert stopped.state == jobs.CANCELLED and tasks.LIBRARY not in stopped.settings
    assert stopped.tasks and all(task.kernel for task in stopped.tasks)
    with database.write() as session:
        jobs.resume(session, job.id)
    ended = run_job(database, job.id, options).job
    assert ended.state == jobs.SUCCEEDED and tasks.LIBRARY in ended.settings


def test_libraries_are_whole_while_their_kernels_are_replaced(
    home: ModelHome, database: Database, settings: Settings, model: Model, tmp_path: Path
) -> None:
    """Written again and again into the same directories, beside promotions."""
    promote_defaults(database, model, settings)
    whole, kit = tmp_path / "net", tmp_path / "kit"
    with replaced_often(database, model, settings) as replaced:
        end_s, rounds = time.monotonic() + EXPORTING_S, 0
        while time.monotonic() < end_s or rounds < 2:
            before = len(replaced)
            command = CommandTime(seconds=1.0)
            export_model(
                database, model, host_target(), settings, whole, "net",
                signing_key=None, command=command,
            )  # fmt: skip
            home.assert_exported(whole)
            request = LibraryRequest(
                kernels=all_kernels(database), families=(), directory=kit, name="kit", isa=None
            )
            export_library_of(database, request, settings)
            verify_hashes(kit)
            rounds += 1
            assert len(replaced) > before
    results = [function.result for function in verify_export(kit, settings).functions]
    assert len(results) == 2 and all(isinstance(result, Retimed) for result in results), results
