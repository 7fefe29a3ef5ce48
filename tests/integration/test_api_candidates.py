"""Kernels in C over REST: who may send them, what is refused, what the answer holds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from tests.support.live_service import LiveService, options_for, serving
from tests.support.targets import ZEN5
from tuner.db import jobs, leases, tasks
from tuner.export.artifacts import ArtifactStore

WORKLOAD = {"op": "matmul", "params": {"M": 2, "N": 2, "K": 2}}
SOURCE = "int matmul_m2_n2_k2(const float *a, const float *b, float *c) { return 0; }"
BODY: dict[str, Any] = {"workload": WORKLOAD, "source": SOURCE}
VERDICT = {
    "verdict": "wrong_element",
    "message": "output C is wrong",
    "element": {
        "output": "C",
        "index": [0, 1],
        "value": "nan",
        "expected": 1.5,
        "inputs": "normal",
    },
    "max_rel_error": None,
    "time": None,
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    folder = tmp_path_factory.mktemp("service")
    options = options_for(f"sqlite:///{folder}/tuner.sqlite", folder, target=ZEN5)
    with serving(replace(options, candidates="on")) as live:
        yield live


def send(service: LiveService, key: str, body: object = BODY, **headers: str) -> httpx.Response:
    return httpx.post(
        f"{service.url}/v1/candidates",
        json=body,
        headers={"Authorization": f"Bearer {key}", **headers},
    )


@pytest.fixture(scope="module")
def key(service: LiveService) -> str:
    return service.key("submit:source")


def test_a_source_becomes_a_job(service: LiveService, key: str) -> None:
    answered = send(service, key)
    assert answered.status_code == 202, answered.text
    document = answered.json()
    assert (document["job"]["kind"], document["job"]["state"]) == ("judge", "queued")
    assert document["symbol"] == "matmul_m2_n2_k2"
    assert "int matmul_m2_n2_k2(const float *in_A" in document["signature"]
    assert (document["language"], document["verdict"]) == ("c", None)
    where = answered.headers["Location"]
    assert where == f"/v1/candidates/{document['job']['id']}"
    headers = {"Authorization": f"Bearer {key}"}
    assert httpx.get(service.url + where, headers=headers).json() == document
    with service.database.read() as session:
        digest = jobs.get(session, document["job"]["id"]).settings[tasks.SOURCE]
    assert ArtifactStore(service.options.artifacts).get(digest).decode() == SOURCE
    assert send(service, key).json()["job"]["id"] != document["job"]["id"]


def test_its_sender_may_cancel_and_resume_it(service: LiveService, key: str) -> None:
    job = send(service, key).json()["job"]["id"]
    with service.http(key) as http:
        cancelled = http.post(f"/jobs/{job}/cancel")
        resumed = http.post(f"/jobs/{job}/resume")
    assert cancelled.status_code == 200 and cancelled.json()["state"] == "cancelled"
    assert resumed.status_code == 200 and resumed.json()["state"] == "queued"
    with service.http(service.key("read")) as http:
        assert http.post(f"/jobs/{job}/cancel").status_code in (403, 404)


def test_the_verdict_is_shown(service: LiveService, key: str) -> None:
    job_id = send(service, key).json()["job"]["id"]
    with service.database.write() as session:
        _, lease = leases.claim(session, job_id, owner="w", lifetime=timedelta(seconds=30))
        tasks.note_verdict(session, lease, VERDICT)
        leases.finish(session, lease, "succeeded")
    headers = {"Authorization": f"Bearer {key}"}
    answered = httpx.get(f"{service.url}/v1/candidates/{job_id}", headers=headers).json()
    assert (answered["job"]["state"], answered["verdict"]) == ("succeeded", VERDICT)


def test_a_repeated_request_is_one_job(service: LiveService, key: str) -> None:
    first, second = (send(service, key, **{"Idempotency-Key": "once"}) for _ in range(2))
    assert first.json() == second.json()
    assert second.headers["Idempotency-Replayed"] == "true"
    other = send(service, key, BODY | {"source": SOURCE + " "}, **{"Idempotency-Key": "once"})
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")


def test_what_is_refused_leaves_no_file(service: LiveService) -> None:
    key = service.key("submit:source", quota=0)
    refused = send(service, key, BODY | {"source": SOURCE + "// refused"})
    assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded")
    digest = hashlib.sha256(f"{SOURCE}// refused".encode()).hexdigest()
    assert not ArtifactStore(service.options.artifacts).exists(digest)


@pytest.mark.parametrize("scope", ["read", "submit", "worker"])
def test_other_scopes_are_refused(service: LiveService, scope: str) -> None:
    answered = send(service, service.key(scope))
    assert (answered.status_code, answered.json()["code"]) == (403, "forbidden")


def test_the_scope_reads_its_own_and_submits_no_jobs(service: LiveService, key: str) -> None:
    job_id = send(service, key).json()["job"]["id"]
    headers = {"Authorization": f"Bearer {key}"}
    assert httpx.get(f"{service.url}/v1/jobs/{job_id}", headers=headers).status_code == 200
    refused = httpx.post(f"{service.url}/v1/jobs", json={"workload": WORKLOAD}, headers=headers)
    assert refused.status_code == 403
    stranger = {"Authorization": f"Bearer {service.key('submit:source')}"}
    where = f"{service.url}/v1/candidates/{job_id}"
    assert httpx.get(where, headers=stranger).status_code == 404


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"source": ""}, 422),
        ({"source": "x" * (256 * 1024 + 1)}, 422),
        ({"source": 7}, 422),
        ({"flags": "-fplugin=x.so"}, 422),
        ({"workload": {"op": "matmul", "params": {"M": 0}}}, 422),
        ({"workload": {"op": "dense", "params": {"M": 2, "N": 2, "K": 2, "const": "W"}}}, 400),
        ({"target": "cuda:sm_90"}, 422),
        ({"language": "cuda"}, 422),
        ({"launch": {"grid": [1], "block": [1]}}, 422),
        ({"language": "fortran"}, 422),
    ],
)
def test_refused(service: LiveService, key: str, change: dict[str, Any], status: int) -> None:
    answered = send(service, key, BODY | change)
    assert answered.status_code == status, answered.text


CUDA: dict[str, Any] = {
    "workload": WORKLOAD,
    "language": "cuda",
    "source": 'extern "C" __global__ void matmul_m2_n2_k2(const float *, float *, float *) {}',
    "launch": {"grid": [4], "block": [32, 2], "shared_bytes": 1024},
    "target": "cuda:sm_90",
}


def test_a_source_in_cuda_becomes_a_job_for_a_gpu(service: LiveService, key: str) -> None:
    answered = send(service, key, CUDA)
    assert answered.status_code == 202, answered.text
    document = answered.json()
    assert (document["job"]["kind"], document["language"]) == ("judge", "cuda")
    assert document["job"]["target"]["kind"] == "cuda"
    assert (
        'extern "C" __global__ void matmul_m2_n2_k2(const float *in_A, const float *in_B, '
        "float *out_C);" in document["signature"]
    )
    with service.database.read() as session:
        settings = jobs.get(session, document["job"]["id"]).settings
    assert settings[tasks.LAUNCH] == {
        "grid": [4, 1, 1],
        "block": [32, 2, 1],
        "shared_bytes": 1024,
    }


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"target": None}, "the source is cuda, and "),
        ({"launch": None}, "comes with 'launch'"),
        ({"launch": {"grid": [1], "block": [2048]}}, "2048 threads along x"),
        ({"launch": {"grid": [1], "block": [64, 32]}}, "2048 threads in a block"),
        ({"launch": {"grid": [1, 65536], "block": [1]}}, "65536 blocks along y"),
        ({"launch": {"grid": [1], "block": [1], "shared_bytes": 1 << 20}}, "of shared memory"),
        ({"launch": {"grid": [0], "block": [1]}}, "launch.grid.0"),
        ({"launch": {"grid": [1, 1, 1, 1], "block": [1]}}, "launch.grid"),
        ({"launch": {"grid": [1], "block": []}}, "launch.block"),
        ({"launch": {"grid": [1.5], "block": [1]}}, "launch.grid.0"),
        ({"launch": {"block": [1]}}, "launch.grid"),
        ({"launch": {"grid": [1], "block": [1], "flags": "-O0"}}, "launch.flags"),
        ({"source": "x" * (256 * 1024 + 1)}, "source"),
    ],
)
def test_a_launch_that_is_refused(
    service: LiveService, key: str, change: dict[str, Any], says: str
) -> None:
    answered = send(service, key, CUDA | change)
    assert (answered.status_code, answered.json()["code"]) == (422, "invalid_request")
    assert says in answered.json()["detail"], answered.text


def test_c_for_a_gpu_says_what_to_send(service: LiveService, key: str) -> None:
    answered = send(service, key, BODY | {"target": "cuda:sm_90"})
    assert "send cuda for it, or name a CPU as the target" in answered.json()["detail"]


def test_a_job_of_another_kind_is_no_candidate(service: LiveService, key: str) -> None:
    admin = {"Authorization": f"Bearer {service.key('admin')}"}
    job = httpx.post(f"{service.url}/v1/jobs", json={"workload": WORKLOAD}, headers=admin).json()
    where = f"{service.url}/v1/candidates/{job['id']}"
    assert httpx.get(where, headers=admin).status_code == 404


def test_off_unless_the_operator_says_on(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("closed")
    options = options_for(f"sqlite:///{folder}/tuner.sqlite", folder, target=ZEN5)
    assert options.candidates == "off"
    with serving(options) as closed:
        for scope in ("submit:source", "admin"):
            answered = send(closed, closed.key(scope))
            assert answered.status_code == 403
            assert "the setting candidates" in answered.json()["detail"]
