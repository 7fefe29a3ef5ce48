"""Kernels over HTTP: explained, downloaded in parts, run on arrays through the queue
that workers serve, looked up."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.answered_runs import work
from tests.support.database_samples import sample_kernel
from tests.support.live_service import LiveService, options_for, serving
from tests.support.promotions import ARCHIVE, DIGEST, promote
from tuner.client import ServiceError
from tuner.db import artifacts, jobs, kernels, promotions, runs


@pytest.fixture(scope="module")
def service(service_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    with serving(
        options_for(
            service_url, tmp_path_factory.mktemp("service"), run_wait_s=1.0, max_run_bytes=100_000
        )
    ) as live:
        yield live


def inputs(m: int = 16) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(3)
    return {"A": rng.random((m, 4), np.float32), "B": rng.random((4, 8), np.float32)}


def multiply(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {"C": arrays["A"] @ arrays["B"]}


def test_a_kernel_is_explained(service: LiveService) -> None:
    kernel, client = promote(service), service.client(service.key("read"))
    shown = client.kernel(kernel)
    assert (shown.workload.op, shown.state, shown.verified) == ("matmul", "promoted", True)
    assert shown.ci95_s[0] < shown.median_s < shown.ci95_s[1]
    assert shown.disturbed  # the interval of the sample is a fifth of it
    assert kernel in [each.id for each in client.kernels(op="matmul")]
    assert list(client.kernels(op="softmax")) == []
    assert client.schedule(kernel).schedule["trace"] == [["split", 4]]
    assert client.source(kernel).sources == {"llvm": "define void @f()"}
    with pytest.raises(ServiceError) as caught:
        client.kernel("k_nothing")
    assert (caught.value.status, caught.value.code) == (404, "not_found")


def test_the_artifact_is_delivered_whole_in_parts_and_only_when_changed(
    service: LiveService,
) -> None:
    kernel, token = promote(service), service.key("read")
    assert service.client(token).artifact(kernel) == ARCHIVE
    path = f"/kernels/{kernel}/artifact"
    with service.http(token) as http:
        whole = http.get(path)
        assert (
            whole.headers["etag"] == f'"{DIGEST}"'
            and whole.headers["content-type"] == "application/gzip"
        )
        assert whole.headers["x-signature-ed25519"] == "c2ln"
        part = http.get(path, headers={"Range": "bytes=100-199", "If-Range": whole.headers["etag"]})
        assert (part.status_code, part.content, part.headers["content-range"]) == (
            206,
            ARCHIVE[100:200],
            "bytes 100-199/10240",
        )
        assert http.get(path, headers={"If-None-Match": whole.headers["etag"]}).status_code == 304
        assert http.get(path, headers={"Range": "bytes=99999-"}).status_code == 416


def test_a_damaged_artifact_is_not_delivered(service: LiveService) -> None:
    kernel = promote(service)
    file = service.store.path(DIGEST)
    file.write_bytes(ARCHIVE[:-1] + b"!")
    try:
        with service.http(service.key("read")) as http:
            response = http.get(f"/kernels/{kernel}/artifact")
            assert response.status_code == 500 and response.json()["code"] == "artifact_corrupt"
            assert str(file) not in response.text
    finally:
        file.write_bytes(ARCHIVE)


def test_a_kernel_runs_on_arrays(service: LiveService) -> None:
    kernel, arrays = promote(service), inputs()
    worker = work(service, multiply)
    outputs = service.client().run(kernel, arrays)
    worker.join(timeout=20)
    np.testing.assert_allclose(outputs["C"], arrays["A"] @ arrays["B"], rtol=1e-6)


def test_a_run_that_takes_longer_is_fetched_later_and_only_by_its_key(service: LiveService) -> None:
    kernel, token = promote(service), service.key("submit")
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **inputs())
    with service.http(token) as http:
        headers = {"Content-Type": "application/x-npz"}
        late = http.post(f"/kernels/{kernel}/run", content=buffer.getvalue(), headers=headers)
        assert (late.status_code, late.json()["state"]) == (202, "queued")
        where = late.headers["location"].removeprefix("/v1")
        assert http.get(where).status_code == 202
        with service.http(service.key("submit")) as other:
            assert other.get(where).status_code == 404
        work(service, multiply).join(timeout=20)
        done = http.get(where)
        assert (done.status_code, done.headers["content-type"]) == (200, "application/x-npz")


def test_runs_that_are_sent_at_once_share_a_limit(service: LiveService) -> None:
    kernel, buffer = promote(service), io.BytesIO()
    np.savez(buffer, allow_pickle=False, **inputs())
    headers = {"Content-Type": "application/x-npz"}
    options = replace(service.options, max_waiting_runs=3, run_wait_s=0.0)
    with serving(options) as live, live.http(live.key()) as http, ThreadPoolExecutor(8) as pool:

        def status(_: int) -> int:
            path = f"/kernels/{kernel}/run"
            return http.post(path, content=buffer.getvalue(), headers=headers).status_code

        assert sorted(pool.map(status, range(16))) == [202] * 3 + [429] * 13
        for _ in range(3):
            with live.database.write() as session:
                run = runs.claim_next(session, owner="test", lifetime=timedelta(seconds=9))
                assert run is not None
                runs.finish(session, run.id, run.fence, error="not run")


def test_a_failing_run_tells_why(service: LiveService) -> None:
    kernel = promote(service)
    worker = work(service, lambda arrays: "the kernel took longer than 20 s")
    with pytest.raises(ServiceError, match="longer than 20 s") as caught:
        service.client().run(kernel, inputs())
    worker.join(timeout=20)
    assert (caught.value.status, caught.value.code) == (422, "run_failed")


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"A": np.zeros((16, 4))}, 422),
        ({"A": np.zeros((4, 16), np.float32)}, 422),
        ({"X": np.zeros(1)}, 422),
        ({"A": np.zeros((500, 500), np.float32)}, 413),
    ],
)
def test_wrong_arrays_are_refused_before_anything_is_queued(
    service: LiveService, change: dict[str, NDArray[Any]], status: int
) -> None:
    kernel, client = promote(service), service.client()
    with pytest.raises(ServiceError) as caught:
        client.run(kernel, {**inputs(), **change})
    assert caught.value.status == status
    with service.database.write() as session:
        assert runs.claim_next(session, owner="worker", lifetime=timedelta(seconds=1)) is None


def test_nothing_but_arrays_is_run(service: LiveService) -> None:
    kernel = promote(service)
    with service.http(service.key("submit")) as http:
        for kind in (
            "application/x-sharedlib",
            "text/x-python",
            "application/python-pickle",
            "application/json",
            "",
        ):
            assert (
                http.post(
                    f"/kernels/{kernel}/run", content=b"\x80\x04.", headers={"Content-Type": kind}
                ).status_code
                == 415
            )
        headers = {"Content-Type": "application/x-npz"}
        assert (
            http.post(f"/kernels/{kernel}/run", content=b"\x80\x04.", headers=headers).status_code
            == 422
        )


def test_lookup_finds_exact_neighbour_or_default(service: LiveService) -> None:
    kernel, client = promote(service, 32), service.client()
    exact = client.lookup({"op": "matmul", "params": {"M": 32, "N": 8, "K": 4}})
    assert (exact.source, exact.kernel and exact.kernel.id, exact.job) == ("exact", kernel, None)
    request = {"op": "matmul", "params": {"M": 40, "N": 8, "K": 4}}
    near = client.lookup(request)
    assert near.source == "neighbour" and near.kernel is not None and near.job is not None
    assert near.kernel.workload.params is not None and near.kernel.workload.params["M"] == 32
    job = client.job(near.job)
    assert (job.kind, job.state) == ("prepare", "queued")
    assert service.client().lookup(request).job == near.job  # one job for all who ask
    with service.database.read() as session:
        assert jobs.get(session, near.job).settings == {"neighbour": kernel}
    other = client.lookup({"op": "softmax", "params": {"M": 4, "N": 4}})
    assert (other.source, other.kernel) == ("default", None) and other.job is not None
    assert other.loss is not None and other.loss.candidates == 1 and other.loss.recorded
    assert other.loss.median < other.loss.within and near.loss is None
    assert (
        client.lookup(
            {"op": "matmul", "params": {"M": 40, "N": 8, "K": 4, "dtype": "float64"}}
        ).source
        == "default"
    )
    reader = service.client(service.key("read"))
    assert reader.lookup({"op": "matmul", "params": {"M": 41, "N": 8, "K": 4}}).job is None


def test_lookup_of_any_thread_count_finds_the_fastest(service: LiveService) -> None:
    first, client = promote(service, 48), service.client()
    request = {"op": "matmul", "params": {"M": 48, "N": 8, "K": 4}}

    def fastest() -> str | None:
        kernel = client.lookup(request, threads="auto").kernel
        return None if kernel is None else kernel.id

    assert fastest() == first
    with service.database.write() as session:
        known = kernels.get(session, first)
        made = []
        for threads, median_s in ((2, known.median_s / 2), (4, known.median_s * 2)):
            new = replace(
                sample_kernel(session, median_s=median_s), workload=known.workload,
                target=known.target, threads=threads,
            )  # fmt: skip
            made.append(promotions.promote(session, new).id)
    assert fastest() == made[0]
    with service.database.write() as session:
        promotions.rollback(session, made[0])
    assert fastest() == first
    none = client.lookup({"op": "matmul", "params": {"M": 47, "N": 9, "K": 5}}, threads="auto")
    assert none.source == "neighbour" and none.kernel is not None and none.kernel.threads == 1


def test_lookup_follows_promotion_and_rollback(service: LiveService) -> None:
    first, client = promote(service, 64), service.client()
    second = promote(service, 64)
    request = {"op": "matmul", "params": {"M": 64, "N": 8, "K": 4}}
    answered = client.lookup(request).kernel
    assert answered is not None and (answered.id, answered.previous) == (second, first)
    with service.http(service.key("submit")) as http:
        assert http.post(f"/kernels/{second}/rollback").status_code == 403
    with service.http(service.key("admin")) as http:
        assert http.post(f"/kernels/{second}/rollback").json()["promoted"]["id"] == first
        assert http.post(f"/kernels/{second}/rollback").status_code == 409
    answered = client.lookup(request).kernel
    assert answered is not None and answered.id == first


def test_who_asks_during_promotions_never_gets_none_and_never_an_older_one(
    service: LiveService,
) -> None:
    made, done = [promote(service, 96)], threading.Event()
    request, client = {"op": "matmul", "params": {"M": 96, "N": 8, "K": 4}}, service.client()
    answered: list[str] = []

    def ask() -> None:
        while not done.is_set():
            answer = client.lookup(request)
            assert answer.kernel is not None and answer.source == "exact"
            answered.append(answer.kernel.id)

    asking = threading.Thread(target=ask)
    asking.start()
    for _ in range(10):
        answers, deadline = len(answered), time.monotonic() + 20
        made.append(promote(service, 96))
        while len(answered) == answers and asking.is_alive() and time.monotonic() < deadline:
            time.sleep(0.001)  # however fast promotions are, there is an answer to each
    done.set()
    asking.join(timeout=20)
    places = [made.index(kernel) for kernel in answered]
    assert places == sorted(places) and len(answered) >= 10
    assert client.artifact(answered[-1]) == ARCHIVE


def test_the_archive_of_the_export_is_preferred_to_the_bare_library(service: LiveService) -> None:
    kernel = promote(service, 128)
    with service.database.write() as session:
        stored = kernels.get(session, kernel)
        library = service.store.put(b"\x7fELF")
        artifacts.remember(session, sha256=library, size_bytes=4, kind="library")
        names = [
            name
            for name in promotions.NewKernel.__dataclass_fields__
            if name not in ("schedule", "artifact", "previous")
        ]
        same = {name: getattr(stored, name) for name in names}
        text = {"text": "s.split(i)"}
        bare = promotions.promote(
            session, promotions.NewKernel(schedule=text, artifact=library, previous=kernel, **same)
        )
        schedule = {**text, "export": DIGEST}
        packed = promotions.promote(
            session,
            promotions.NewKernel(schedule=schedule, artifact=library, previous=bare.id, **same),
        )
    client = service.client(service.key("read"))
    assert client.artifact(bare.id) == b"\x7fELF"
    assert client.artifact(packed.id) == ARCHIVE
    assert client.source(packed.id).sources == {"schedule": "s.split(i)"}


def test_lookups_queue_only_so_many_jobs(tmp_path: Path) -> None:
    options = options_for(f"sqlite:///{tmp_path}/tuner.sqlite", tmp_path, max_prepare_jobs=2)
    with serving(options) as live, live.http(live.key("submit")) as http:

        def prepared(extent: int) -> str | None:
            workload = {"op": "matmul", "params": {"M": extent, "N": 8, "K": 4}}
            job: str | None = (
                http.post("/lookup", json={"workload": workload}).raise_for_status().json()["job"]
            )
            return job

        first, second = prepared(16), prepared(17)
        assert first is not None and second is not None and prepared(18) is None
        assert prepared(16) == first
        with live.database.write() as session:
            jobs.request_cancel(session, second)
        assert prepared(18) is not None
