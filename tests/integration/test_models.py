"""Models from the file to the library through real workers; a job that came with
nothing but the file."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from tests.support import onnx_networks as nets
from tests.support.archives import unpack
from tests.support.fleet_job import open_in, run_here
from tests.support.live_service import options_for, serving
from tests.support.targets import host_target
from tuner.api.schemas import JobAnswer
from tuner.app.models.region_library import region_library
from tuner.app.models.tuned_model import export_model, submit_model
from tuner.client import Client
from tuner.db import artifacts, events, jobs, kernels, targets
from tuner.db.engine import Database
from tuner.export.artifacts import ArtifactStore
from tuner.models.importer import import_model
from tuner.models.library.region_cache import SYMBOL
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.elementwise import elementwise
from tuner.runtime.loader import Library
from tuner.settings import Settings, load_settings
from tuner.workers.jobs.model_library import Model
from tuner.workers.jobs.runs import RunOptions, RunServer

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(300)]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_in(tmp_path)
    yield opened
    opened.close()


def settings_in(folder: Path, trials: int) -> Settings:
    return load_settings(
        {"data_dir": str(folder), "trials": trials, "threads": 1}, given_as="argument {}"
    ).values


def check_runners_up(database: Database, kernel_ids: Sequence[str]) -> None:
    """At most two beside each kernel, whose object code is stored, slower ones last."""
    with database.read() as session:
        for kernel_id in kernel_ids:
            kernel = kernels.get(session, kernel_id)
            beside = kernels.schedule(session, kernel_id)[kernels.RUNNERS_UP]
            medians = [runner_up["median_s"] for runner_up in beside]
            assert len(beside) <= 2 and medians == sorted(medians)
            assert all(median_s <= 1.25 * kernel.median_s for median_s in medians)
            for runner_up in beside:
                assert runner_up["trial"] != kernel.trial
                assert artifacts.get(session, runner_up["object"]).kind == "object"


def test_a_model_is_tuned_within_its_budget_and_exported(
    database: Database, tmp_path: Path
) -> None:
    content = nets.serialized(nets.perceptron(rows=2, sizes=(16, 32, 8)))
    model = Model(content=content, shapes={}, graph=import_model(content))
    settings, target = settings_in(tmp_path, 4), host_target()
    job = submit_model(database, [model], target, settings, seconds=settings.seconds)
    assert len(job.tasks) == 3
    report = run_here(database, job.id, tmp_path)
    assert report.job.state == jobs.SUCCEEDED, report.job.error
    assert sum(task.trials_done for task in report.job.tasks) <= 4 * 3
    assert all(task.kernel is not None for task in report.job.tasks)
    check_runners_up(database, [str(task.kernel) for task in report.job.tasks])
    out = tmp_path / "out"
    tuned = export_model(database, model, target, settings, out, "small", signing_key=None)
    assert tuned.max_rel_error <= 1e-4 and tuned.median_s > 0
    x = np.random.default_rng(1).standard_normal((2, 16)).astype(np.float32)
    y = Library(out / "lib/libsmall.so").function("small_run")(x)
    np.testing.assert_allclose(y.sum(axis=1), np.ones(2), rtol=1e-5)
    assert ctypes.CDLL(str(out / "lib/libsmall.so"))


def test_kernels_of_a_model_stay_where_there_is_no_time_for_them(
    database: Database, tmp_path: Path
) -> None:
    """Tuned again in no time at all: what the database has is verified and makes the library."""
    content = nets.serialized(nets.perceptron(rows=2, sizes=(16, 32, 8)))
    model = Model(content=content, shapes={}, graph=import_model(content))
    settings, target = settings_in(tmp_path, 2), host_target()
    first, second = (
        run_here(
            database,
            submit_model(database, [model], target, settings, seconds=seconds).id,
            tmp_path,
        ).job
        for seconds in (settings.seconds, 0.1)
    )
    assert first.state == second.state == jobs.SUCCEEDED, (first.error, second.error)
    untried = [task for task in second.tasks if not task.trials_done]
    before = {task.workload: task.kernel for task in first.tasks}
    assert len(untried) >= 2 and all(task.kernel == before[task.workload] for task in untried)
    with database.read() as session:
        notes = str([event.data for event in events.after(session, second.id, 0)])
    assert f"{len(untried)} of 3 stay as the database has them" in notes
    out = tmp_path / "out"
    tuned = export_model(database, model, target, settings, out, "small", signing_key=None)
    assert tuned.max_rel_error <= 1e-4


def test_a_job_of_a_file_finds_its_workloads_or_fails_with_the_reason(
    database: Database, tmp_path: Path
) -> None:
    good, bad = nets.serialized(nets.perceptron(rows=2, sizes=(16, 8))), b"no model at all"
    store, ended = ArtifactStore(tmp_path / "artifacts"), []
    for content in (good, bad):
        digest = store.put(content)
        with database.write() as session:
            artifacts.remember(session, sha256=digest, size_bytes=len(content), kind="model")
            target = targets.remember(session, host_target())
            new = jobs.NewJob(
                workloads=(),
                target=target,
                threads=1,
                trials=2,
                kind=jobs.MODEL,
                settings={"model": digest},
            )
            job, _ = jobs.create(session, new)
        ended.append(run_here(database, job.id, tmp_path).job)
    done, refused = ended
    assert done.state == jobs.SUCCEEDED, done.error
    assert len(done.tasks) == 2 and all(task.kernel for task in done.tasks)
    assert refused.state == jobs.FAILED and "no ONNX model" in str(refused.error)
    with database.read() as session:
        assert "workloads found in the model" in str(
            [event.data for event in events.after(session, done.id, 0)]
        )


@contextmanager
def running(database: Database, folder: Path) -> Iterator[None]:
    """Serves runs meanwhile."""
    options = RunOptions(
        artifacts=folder / "artifacts", target=host_target().key, cores=(0,), owner="runs"
    )
    stop = threading.Event()
    thread = threading.Thread(target=RunServer(database, options).serve, args=[stop])
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=60)


def first_job(client: Client) -> JobAnswer:
    """The job that somebody submits to a service within a minute."""
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s:
        for job in client.jobs():
            return job
        time.sleep(0.1)
    raise TimeoutError("no job was submitted")


def test_a_region_is_tuned_by_a_service(tmp_path: Path) -> None:
    """By a client that has a database of its own, which stays empty."""
    builder = GraphBuilder()
    x = builder.input([32, 64], "float32")
    traced = builder.graph([elementwise("scaled", lambda e: e * 3, x)], ["in0", "out0"])
    options = options_for(
        f"sqlite:///{tmp_path}/tuner.sqlite", tmp_path, models=True, target=host_target()
    )
    path = tmp_path / "region.so"
    with serving(options) as service:
        given = {
            "data_dir": str(tmp_path / "client"),
            "threads": 1,
            "trials": 2,
            "server": service.url,
            "token": service.key("submit", "read"),
        }
        settings = load_settings(given, given_as="option {}").values
        with ThreadPoolExecutor() as pool:
            library = pool.submit(region_library, traced, settings)
            job = first_job(service.client(str(given["token"])))
            assert run_here(service.database, job.id, tmp_path).job.state == jobs.SUCCEEDED
            path.write_bytes(library.result(timeout=120))
    array = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32)
    np.testing.assert_allclose(Library(path).function(SYMBOL)(array), 3 * array, rtol=1e-6)
    assert not (tmp_path / "client/tuner.db").exists()


def test_a_model_is_sent_tuned_and_fetched_over_rest(tmp_path: Path) -> None:
    net = nets.perceptron(rows=2, sizes=(16, 32, 8))
    content = nets.serialized(net)
    options = options_for(
        f"sqlite:///{tmp_path}/tuner.sqlite", tmp_path, models=True, target=host_target()
    )
    with serving(options) as service:
        token = service.key("submit", "read")
        http = service.opened.enter_context(service.http(token))
        headers = {"Content-Type": "application/octet-stream"}
        sent = http.post("/models", content=content, headers=headers, params={"trials": 2})
        assert sent.status_code == 202, sent.text
        library = f"/models/{sent.json()['id']}/library"
        assert http.get(library).status_code == 404
        report = run_here(service.database, sent.json()["id"], tmp_path)
        assert report.job.state == jobs.SUCCEEDED, report.job.error
        fetched = http.get(library)
        assert fetched.status_code == 200, fetched.text
        etag = {"If-None-Match": fetched.headers["ETag"]}
        assert http.get(library, headers=etag).status_code == 304
        with running(service.database, tmp_path):
            ran = service.client(token).run_model(sent.json()["id"], nets.feeds(net))
        shown = service.client(token).model(sent.json()["id"])
    assert shown.median_s and shown.max_rel_error is not None and shown.max_rel_error <= 1e-4
    assert {share.kernel for share in shown.shares} == {step.kernel for step in shown.steps}
    assert sum(share.share for share in shown.shares) == pytest.approx(1.0)
    unpack(fetched.content, tmp_path / "fetched")
    given = nets.feeds(net)
    (expected,) = ReferenceEvaluator(net).run(None, given)
    got = Library(tmp_path / "fetched/model/lib/libmodel.so").function("model_run")(*given.values())
    assert np.abs(got - expected).max() <= 1e-4 * np.abs(expected).max()
    assert {name: array.tobytes() for name, array in ran.items()} == {
        net.graph.output[0].name: got.tobytes()
    }
