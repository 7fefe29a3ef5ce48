"""Models over HTTP: submitted, described, run on arrays through the queue that workers serve."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.answered_runs import work
from tests.support.database_samples import sample_target
from tests.support.described_models import description, measurement, settings
from tests.support.live_service import LiveService, options_for, serving
from tuner.client import ServiceError
from tuner.db import jobs, leases, runs, targets
from tuner.export.artifacts import ArtifactStore
from tuner.models.description import Description, Measurement
from tuner.target.target import Target
from tuner.workload.expression import Tensor

TAKEN = (
    Tensor(name="input:0", shape=(2, 3), dtype="float32"),
    Tensor(name="file", shape=(), dtype="bool"),
)
KERNELS = ("ab" * 32, "cd" * 32)
DESCRIBED = description(KERNELS, steps=4, inputs=TAKEN)
MEASURED = measurement(KERNELS)
NPZ = {"Content-Type": "application/x-npz"}


@pytest.fixture(scope="module")
def service(service_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    folder = tmp_path_factory.mktemp("service")
    with serving(
        options_for(service_url, folder, run_wait_s=1.0, max_run_bytes=100_000, models=True)
    ) as live:
        yield live


def model_job(
    service: LiveService,
    *,
    described: Description | None = DESCRIBED,
    measured: Measurement | None = MEASURED,
    target: Target | None = None,
    owner: str | None = None,
) -> str:
    """The id of a job of a model with what a worker writes down when it reads and ends it."""
    with service.database.write() as session:
        new = jobs.NewJob(
            workloads=(),
            target=targets.remember(session, target or sample_target()),
            threads=1,
            trials=1,
            kind=jobs.MODEL,
            settings=settings(session, service.store, described, measured),
            owner=owner,
        )
        return jobs.create(session, new)[0].id


def key_id(token: str) -> str:
    return token.split("_")[1]


def inputs() -> dict[str, NDArray[Any]]:
    return {"input:0": np.ones((2, 3), np.float32), "file": np.array(True)}


def doubled(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    assert arrays["file"].shape == () and arrays["file"]
    return {"y": arrays["input:0"] * 2}


def test_a_model_becomes_a_job_and_its_file_is_kept(tmp_path: Path) -> None:
    options = options_for(
        f"sqlite:///{tmp_path}/tuner.sqlite", tmp_path, models=True, max_model_bytes=1000
    )
    with serving(options) as live:
        client = live.client()
        job = client.submit_model(b"onnx bytes", trials=5, idempotency_key="m")
        assert (job.kind, job.state, job.trials, job.tasks) == ("model", "queued", 5, [])
        assert client.submit_model(b"onnx bytes", trials=5, idempotency_key="m").id == job.id
        with pytest.raises(ServiceError) as caught:
            client.submit_model(b"other bytes", trials=5, idempotency_key="m")
        assert caught.value.code == "idempotency_conflict"
        with pytest.raises(
            ServiceError, match=r"has 1001 bytes .* at most 1000: raise .* model_gib"
        ) as caught:
            client.submit_model(b"x" * 1001)
        assert caught.value.status == 413
        with live.database.read() as session:
            model = jobs.get(session, job.id).settings["model"]
        assert live.store.get(model) == b"onnx bytes"


def test_a_model_is_sent_with_the_shapes_that_its_file_leaves_open(tmp_path: Path) -> None:
    options = options_for(f"sqlite:///{tmp_path}/tuner.sqlite", tmp_path, models=True)
    with serving(options) as live:
        client = live.client()
        job = client.submit_model(
            b"onnx bytes", shapes="batch=2, x=1x3x48x192", idempotency_key="s"
        )
        with live.database.read() as session:
            assert jobs.get(session, job.id).settings["shapes"] == {
                "batch": 2,
                "x": [1, 3, 48, 192],
            }
        for wrong in ("batch=1..8", "batch", "x=1x", "batch=1,batch=2"):
            with pytest.raises(ServiceError, match="the shapes") as caught:
                client.submit_model(b"onnx bytes", shapes=wrong)
            assert (caught.value.status, caught.value.code) == (400, "invalid_request")
        with pytest.raises(ServiceError) as caught:
            client.submit_model(b"onnx bytes", shapes="batch=3", idempotency_key="s")
        assert caught.value.code == "idempotency_conflict"


def test_a_model_is_described(service: LiveService) -> None:
    client = service.client(service.key("admin"))
    shown = client.model(model_job(service))
    assert [(each.name, each.dtype, each.shape) for each in shown.inputs] == [
        ("input:0", "float32", [2, 3]),
        ("file", "bool", []),
    ]
    assert [(step.name, step.calls, step.after) for step in shown.steps] == [
        ("step0", 1, []),
        ("step1", 32, [0]),
        ("step0", 1, [1]),
        ("step1", 1, [0, 2]),
    ]
    assert (shown.steps[0].constants, shown.steps[0].inputs) == (["c0"], [0, 1])
    assert (shown.constants_bytes, shown.activations_bytes) == (36, 128)
    assert (shown.median_s, shown.max_rel_error) == (3e-3, 2e-6)
    assert [(share.kernel, share.calls, round(share.share, 3)) for share in shown.shares] == [
        (KERNELS[1], 33, 0.971),
        (KERNELS[0], 2, 0.029),
    ]
    unmade = client.model(model_job(service, measured=None))
    assert (unmade.median_s, unmade.shares) == (None, [])


def test_a_model_runs_on_arrays_of_any_names(service: LiveService) -> None:
    job = model_job(service)
    worker = work(service, doubled)
    outputs = service.client(service.key("admin")).run_model(job, inputs())
    worker.join(timeout=20)
    np.testing.assert_array_equal(outputs["y"], np.full((2, 3), 2.0, np.float32))


def test_a_run_that_takes_longer_is_fetched_later_and_only_by_its_key(service: LiveService) -> None:
    token = service.key("submit")
    job = model_job(service, owner=key_id(token))
    with service.http(token) as http:
        late = http.post(f"/models/{job}/run", content=packed(inputs()), headers=NPZ)
        assert (late.status_code, late.json()["job"], late.json()["state"]) == (202, job, "queued")
        where = late.headers["location"].removeprefix("/v1")
        assert where == f"/models/{job}/runs/{late.json()['id']}"
        assert http.get(where).status_code == 202
        assert http.get(where.replace(job, model_job(service))).status_code == 404
        assert http.get(where.replace("models", "kernels")).status_code == 404
        with service.http(service.key("submit")) as other:
            assert other.get(where).status_code == 404
            refused = other.post(f"/models/{job}/run", content=packed(inputs()), headers=NPZ)
            assert (refused.status_code, refused.json()["code"]) == (404, "not_found")
        with service.http(service.key("read")) as reader:
            refused = reader.post(f"/models/{job}/run", content=packed(inputs()), headers=NPZ)
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        work(service, doubled).join(timeout=20)
        done = http.get(where)
        assert (done.status_code, done.headers["content-type"]) == (200, "application/x-npz")


def test_a_failing_run_tells_why(service: LiveService) -> None:
    worker = work(service, lambda arrays: "run_timeout: the run took longer than 20 s")
    with pytest.raises(ServiceError, match="longer than 20 s") as caught:
        service.client(service.key("admin")).run_model(model_job(service), inputs())
    worker.join(timeout=20)
    assert (caught.value.status, caught.value.code) == (422, "run_failed")


def packed(arrays: dict[str, NDArray[Any]], *, cut: int | None = None) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, array)
    return stream.getvalue()[:cut]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (packed({"input:0": inputs()["input:0"]}), 422, "invalid_arrays"),
        (packed(inputs() | {"other": np.zeros(1)}), 422, "invalid_arrays"),
        (packed(inputs() | {"file": np.array(1)}), 422, "invalid_arrays"),
        (packed(inputs() | {"file": np.array([True])}), 422, "invalid_arrays"),
        (packed(inputs() | {"input:0": np.ones((3, 2), np.float32)}), 422, "invalid_arrays"),
        (packed(inputs(), cut=-30), 422, "invalid_arrays"),
        (b"\x80\x04.", 422, "invalid_arrays"),
        (b"", 422, "invalid_arrays"),
        (bytes(100_001), 413, "body_too_large"),
    ],
)
def test_wrong_arrays_are_refused_before_anything_is_queued(
    service: LiveService, body: bytes, status: int, code: str
) -> None:
    with service.http(service.key("admin")) as http:
        refused = http.post(f"/models/{model_job(service)}/run", content=body, headers=NPZ)
        assert (refused.status_code, refused.json()["code"]) == (status, code)
    nothing_queued(service)


def nothing_queued(service: LiveService) -> None:
    with service.database.write() as session:
        assert runs.claim_next(session, owner="worker", lifetime=timedelta(seconds=1)) is None


def test_only_the_library_of_a_model_is_run(service: LiveService) -> None:
    client = service.client(service.key("admin"))
    for job, says in (
        (model_job(service, measured=None), "is queued and has no model's library"),
        (service.queue(), "is queued and has no model's library"),
        (model_job(service, described=None), "no worker has read it yet"),
        ("j_nothing", "no job 'j_nothing'"),
    ):
        with pytest.raises(ServiceError, match=says) as caught:
            client.run_model(job, inputs())
        assert (caught.value.status, caught.value.code) == (404, "not_found")
    nothing_queued(service)


def test_a_failed_models_reason_is_said(service: LiveService) -> None:
    job = model_job(service, measured=None)
    with service.database.write() as session:
        lease = leases.claim(session, job, owner="test")[1]
        leases.finish(session, lease, jobs.FAILED, error="output 0 is off by 0.5")
    with pytest.raises(ServiceError, match=r"is failed and has no .* output 0 is off by 0\.5"):
        service.client(service.key("admin")).run_model(job, inputs())


def test_a_library_for_another_cpu_is_refused_with_the_way_out(service: LiveService) -> None:
    job = model_job(service, target=sample_target("a machine that is not here"))
    with pytest.raises(ServiceError, match=r"a machine that is not here.*download") as caught:
        service.client(service.key("admin")).run_model(job, inputs())
    assert (caught.value.status, caught.value.code) == (422, "run_failed")
    nothing_queued(service)


def test_a_model_that_is_refused_for_its_quota_leaves_no_file(service: LiveService) -> None:
    content = b"a model of nobody"
    with service.http(service.key("submit", quota=0)) as http:
        headers = {"Content-Type": "application/octet-stream"}
        refused = http.post("/models", content=content, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded")
    digest = hashlib.sha256(content).hexdigest()
    assert not ArtifactStore(service.options.artifacts).exists(digest)
