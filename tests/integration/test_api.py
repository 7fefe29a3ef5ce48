"""Jobs over HTTP, on both databases: submitted once, seen by their owner, listed page
by page, refused with a reason."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.database_samples import failed, sample_target, timed
from tests.support.live_service import (
    MATMUL,
    NOTATION,
    LiveService,
    options_for,
    serving,
    wait_for,
)
from tuner.client import ServiceError
from tuner.db import jobs, keys, leases, targets, trials


@pytest.fixture(scope="module")
def service(service_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    with serving(options_for(service_url, tmp_path_factory.mktemp("service"))) as live:
        yield live


def submit(
    http: httpx.Client, body: dict[str, Any] | None = None, *, idempotency_key: str | None = None
) -> httpx.Response:
    headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
    return http.post("/jobs", json=body or {"workload": MATMUL}, headers=headers)


def test_a_submitted_job_is_there_and_nothing_is_left_to_guess(service: LiveService) -> None:
    with service.http(service.key("submit")) as http:
        response = submit(
            http,
            {
                "workloads": [MATMUL, {"notation": NOTATION, "shapes": {"M": 4, "N": 4, "K": 4}}],
                "trials": 7,
            },
        )
        assert response.status_code == 202
        job = http.get(response.headers["location"].removeprefix("/v1")).json()
    assert job == response.json()
    assert (job["state"], job["trials"], job["threads"], job["strategy"]) == (
        "queued",
        7,
        1,
        "annealing",
    )
    first, second = job["tasks"]
    assert first["workload"]["op"] == "matmul" and first["workload"]["params"]["M"] == 16
    assert first["workload"]["params"]["dtype"] == "float32"
    assert second["workload"]["notation"] == NOTATION and second["workload"]["shapes"] == {
        "M": 4,
        "N": 4,
        "K": 4,
    }
    assert job["target"]["kind"] == "cpu"


def test_repeated_requests_make_one_job(service: LiveService) -> None:
    token = service.key("submit")
    answers: list[httpx.Response] = []

    def send() -> None:
        with service.http(token) as http:
            answers.append(submit(http, idempotency_key="once"))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert [answer.status_code for answer in answers] == [202] * 8
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1
    with service.http(token) as http:
        assert len(http.get("/jobs").json()["items"]) == 1
        other = submit(http, {"workload": MATMUL, "trials": 5}, idempotency_key="once")
        assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    with service.http(service.key("submit")) as http:  # another key's keys are its own
        assert "idempotency-replayed" not in submit(http, idempotency_key="once").headers


def test_what_was_accepted_is_not_refused_when_it_comes_again(tmp_path: Path) -> None:
    """A machine joined meanwhile, and a request that names no target means two of them."""
    url = f"sqlite:///{tmp_path}/tuner.sqlite"
    with serving(options_for(url, tmp_path, target=None, models=True)) as live:
        live.queue()  # brings the first target
        client = live.client()
        job = client.submit(MATMUL, idempotency_key="a").id
        model = client.submit_model(b"onnx", idempotency_key="b").id
        with live.database.write() as session:
            targets.remember(session, sample_target("another"))
        assert client.submit(MATMUL, idempotency_key="a").id == job
        assert client.submit_model(b"onnx", idempotency_key="b").id == model
        with pytest.raises(ServiceError, match="means 2 targets"):
            client.submit(MATMUL, idempotency_key="c")


def test_keys_see_their_own_jobs_and_administrators_all(service: LiveService) -> None:
    first, second, admin = service.key("submit"), service.key("submit"), service.key("admin")
    job = service.client(first).submit(MATMUL).id
    assert [listed.id for listed in service.client(first).jobs()] == [job]
    assert list(service.client(second).jobs()) == []
    for path, method in (
        ("", "GET"),
        ("/trials", "GET"),
        ("/events", "GET"),
        ("/cancel", "POST"),
        ("/resume", "POST"),
    ):
        with service.http(second) as http:
            foreign = http.request(method, f"/jobs/{job}{path}")
            none = http.request(method, f"/jobs/j_none{path}")
            assert foreign.status_code == none.status_code == 404, path
            assert foreign.json()["detail"] == none.json()["detail"].replace("j_none", job)
    assert service.client(admin).job(job).id == job
    assert job in [listed.id for listed in service.client(admin).jobs()]


def test_scopes_expiry_and_revocation(service: LiveService) -> None:
    def status(token: str | None, method: str = "GET", path: str = "/jobs") -> int:
        with service.http(token) as http:
            return http.request(
                method, path, json={"workload": MATMUL} if method == "POST" else None
            ).status_code

    for token in (
        None,
        "nonsense",
        "tk_",
        "tk_abc_def",
        "tk_" + "x" * 5000,
        service.key("read")[:-1] + "~",
    ):
        assert status(token) == 401, token
    assert (status(service.key("read")), status(service.key("read"), "POST")) == (200, 403)
    assert (status(service.key("submit")), status(service.key("submit"), "POST")) == (200, 202)
    assert (status(service.key("worker")), status(service.key("worker"), "POST")) == (403, 403)
    assert (status(service.key("admin")), status(service.key("admin"), "POST")) == (200, 202)
    with service.database.write() as session:
        past = datetime.now(UTC) - timedelta(seconds=1)
        expired = keys.create(session, name="old", scopes=["read"], expires_at=past)[1]
        key, revoked = keys.create(session, name="gone", scopes=["read"])
    assert status(expired) == 401
    assert status(revoked) == 200
    with service.database.write() as session:
        keys.revoke(session, key.id)
    wait_for(lambda: status(revoked) == 401, timeout_s=5)


def test_probes_need_no_key_and_everything_else_does(service: LiveService) -> None:
    with service.http() as http:
        assert http.get("/health/live").status_code == http.get("/health/ready").status_code == 200
        for path in (
            "/jobs",
            "/kernels",
            "/workers",
            "/targets",
            "/operators",
            "/metrics",
            "/nothing",
        ):
            response = http.get(path)
            assert response.status_code == 401, path
            assert response.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    ("workload", "line", "column"),
    [
        (
            {
                "notation": "kernel f(A: f32[N]) -> (B: f32[N]) {\n  B[i] = C[i]\n}",
                "shapes": {"N": 4},
            },
            2,
            10,
        ),
        (
            {
                "notation": "kernel f(A: f32[N]) -> (B: f32[N]) {\n  B[i] = A[i + 1]\n}",
                "shapes": {"N": 4},
            },
            2,
            None,
        ),
        ({"notation": "kernel f(", "shapes": {}}, 1, None),
    ],
)
def test_a_notations_fault_has_its_place(
    service: LiveService, workload: dict[str, Any], line: int, column: int | None
) -> None:
    with service.http(service.key("submit")) as http:
        response = submit(http, {"workload": workload})
    problem = response.json()
    assert (response.status_code, problem["code"], problem["line"]) == (
        422,
        "invalid_workload",
        line,
    )
    assert problem["column"] >= 1 and column in (None, problem["column"])
    assert response.headers["x-request-id"] == problem["request_id"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"workload": {"op": "matmull", "params": {}}}, "matmul"),
        ({"workload": {"op": "matmul", "params": {"M": 0, "N": 1, "K": 1}}}, "M"),
        ({"workload": {"op": "matmul", "params": {"M": "1..512", "N": 1, "K": 1}}}, "range"),
        ({"workload": MATMUL, "target": "nowhere"}, "nowhere"),
        ({"workload": MATMUL, "trials": 0}, "trials"),
        ({"workload": MATMUL, "workloads": [MATMUL]}, "either"),
        ({"workload": MATMUL, "python": "import os"}, "python"),
        ({"workload": {"tvmscript": "@T.prim_func"}}, "op"),
        ({}, "either"),
    ],
)
def test_wrong_requests_are_refused_by_name(
    service: LiveService, body: dict[str, Any], text: str
) -> None:
    with service.http(service.key("submit")) as http:
        response = http.post("/jobs", json=body)
        assert response.status_code == 422
        assert text in response.text
        assert http.get("/jobs").json()["items"] == []


def test_the_body_limit_holds_over_the_wire(service: LiveService) -> None:
    with service.http(service.key("submit")) as http:
        assert http.post("/jobs", content=b"[" * 1_000_001).status_code == 413

        def chunks() -> Iterator[bytes]:
            for _ in range(20):
                yield b"[" * 100_000

        assert (
            http.post(
                "/jobs", content=chunks(), headers={"Content-Type": "application/json"}
            ).status_code
            == 413
        )
        assert (
            http.post(
                "/jobs", content=b"[" * 999_999, headers={"Content-Type": "application/json"}
            ).status_code
            == 400
        )


def test_pages_follow_each_other_while_jobs_arrive(service: LiveService) -> None:
    token = service.key("submit")
    client = service.client(token)
    made = [client.submit(MATMUL, trials=number + 1).id for number in range(5)]
    with service.http(token) as http:
        first = http.get("/jobs", params={"limit": 2}).json()
        client.submit(MATMUL)
        second = http.get("/jobs", params={"limit": 2, "cursor": first["next"]}).json()
        third = http.get("/jobs", params={"limit": 2, "cursor": second["next"]}).json()
        assert http.get("/jobs", params={"cursor": "nonsense"}).status_code == 400
        upwards = http.get("/jobs", params={"limit": 3, "sort": "created_at"}).json()
        rest = http.get("/jobs", params={"sort": "created_at", "cursor": upwards["next"]}).json()
        assert [item["id"] for item in upwards["items"] + rest["items"]][:5] == made
        assert (
            http.get("/jobs", params={"cursor": upwards["next"]}).status_code == 400
        )  # of another order
    assert [item["id"] for page in (first, second, third) for item in page["items"]] == made[::-1]
    assert third["next"] is None


def test_cancel_and_resume(service: LiveService) -> None:
    client = service.client()
    job = client.submit(MATMUL).id
    assert client.cancel(job).state == "cancelled"
    assert client.cancel(job).state == "cancelled"
    assert [listed.id for listed in client.jobs(state="cancelled")] == [job]
    resumed = client.resume(job, trials=99)
    assert (resumed.state, resumed.trials) == ("queued", 99)
    lease = service.claim(job)
    assert client.cancel(job).state == "cancelling"
    with service.database.write() as session:
        leases.finish(session, lease, "succeeded")
    with pytest.raises(ServiceError) as caught:
        client.cancel(job)
    assert (caught.value.status, caught.value.code) == (409, "illegal_transition")


def test_trials_are_filtered_and_sorted_by_the_server(service: LiveService) -> None:
    token = service.key("submit")
    job = service.client(token).submit(MATMUL).id
    lease = service.claim(job)
    with service.database.write() as session:
        for number in range(6):
            trial = (
                timed(number, 1e-3 * (6 - number))
                if number % 2
                else failed(number, "no such loop <script>")
            )
            trials.record(session, lease, trial)
    client = service.client(token)
    assert [trial.number for trial in client.trials(job, limit=4)] == list(range(6))
    assert [trial.number for trial in client.trials(job, sort="median_s", limit=2)] == [
        5,
        3,
        1,
        0,
        2,
        4,
    ]
    assert [trial.number for trial in client.trials(job, outcome="failed")] == [0, 2, 4]
    assert [trial.number for trial in client.trials(job, max_median_s="0.003")] == [3, 5]
    assert [trial.number for trial in client.trials(job, knob="tile=[4,8]")] == [1, 3, 5]
    assert [trial.number for trial in client.trials(job, knob="unroll=4")] == [0, 2, 4]
    listed = next(client.trials(job))
    assert (listed.outcome, listed.error) == ("build_error", "no such loop <script>")
    with service.http(token) as http:
        assert http.get(f"/jobs/{job}/trials", params={"outcome": "nonsense"}).status_code == 400
        assert http.get(f"/jobs/{job}/trials", params={"sort": "nonsense"}).status_code == 422
        assert http.get(f"/jobs/{job}/trials", params={"knob": "nonsense"}).status_code == 400


def test_a_quota_counts_unfinished_jobs_and_not_repeats(service: LiveService) -> None:
    with service.http(service.key("submit", quota=2)) as http:
        first = submit(http, idempotency_key="a")
        assert submit(http).status_code == 202
        refused = submit(http)
        assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded")
        assert refused.json()["retryable"] and int(refused.headers["retry-after"]) > 0
        assert submit(http, idempotency_key="a").json()["id"] == first.json()["id"]
        http.post(f"/jobs/{first.json()['id']}/cancel")
        assert submit(http).status_code == 202


def test_a_resumed_job_counts_like_a_new_one(service: LiveService) -> None:
    with service.http(service.key("submit", quota=1)) as http:
        first = submit(http).json()["id"]
        http.post(f"/jobs/{first}/cancel")
        second = submit(http).json()["id"]
        refused = http.post(f"/jobs/{first}/resume")
        assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded")
        assert http.get(f"/jobs/{first}").json()["state"] == "cancelled"
        assert http.post(f"/jobs/{second}/resume").status_code == 200  # it is queued already
        http.post(f"/jobs/{second}/cancel")
        assert http.post(f"/jobs/{first}/resume").json()["state"] == "queued"


def test_requests_sent_at_once_share_a_quota(service: LiveService) -> None:
    with service.http(service.key("submit", quota=3)) as http, ThreadPoolExecutor(8) as pool:
        statuses = sorted(
            answer.status_code for answer in pool.map(lambda _: submit(http), range(16))
        )
    assert statuses == [202] * 3 + [429] * 13


def test_operators_targets_workers_and_metrics(service: LiveService) -> None:
    client = service.client(service.key("read"))
    operators = {operator.name: operator for operator in client.operators()}
    assert {"matmul", "conv2d", "softmax", "attention"} <= set(operators)
    assert {parameter.name for parameter in operators["matmul"].parameters} >= {
        "M",
        "N",
        "K",
        "dtype",
    }
    assert [target.name for target in client.targets()] == ["machine"]
    assert list(client.workers()) == []
    with service.http(service.key("read")) as http:
        text = http.get("/metrics").text
    assert 'tuner_jobs{state="queued"}' in text and "tuner_http_request_seconds_bucket" in text


def test_the_reference_is_served_from_here(service: LiveService) -> None:
    with httpx.Client(base_url=service.url) as http:
        page = http.get("/docs")
        assert page.status_code == 200 and "submit_job" in page.text
        assert "style-src 'self'" in page.headers["content-security-policy"]
        assert http.get("/docs/style.css").headers["content-type"].startswith("text/css")
        assert http.get("/openapi.json").json()["info"]["title"] == "tuner"


def test_models_are_refused_with_the_way_out(service: LiveService) -> None:
    with service.http(service.key("submit")) as http:
        response = http.post(
            "/models", content=b"onnx", headers={"Content-Type": "application/octet-stream"}
        )
        assert (response.status_code, response.json()["code"]) == (422, "models_unavailable")
        assert "/v1/jobs" in response.json()["detail"]
        assert (
            http.post(
                "/models", content=b"x", headers={"Content-Type": "text/x-python"}
            ).status_code
            == 415
        )


def test_the_database_is_the_truth_after_a_restart(tmp_path: Path) -> None:
    options = options_for(f"sqlite:///{tmp_path}/tuner.sqlite", tmp_path)
    with serving(options) as live:
        token = live.key("submit")
        job = live.client(token).submit(MATMUL, idempotency_key="kept").id
    with serving(options) as live:
        assert live.client(token).job(job).state == "queued"
        assert live.client(token).submit(MATMUL, idempotency_key="kept").id == job
        with live.database.read() as session:
            assert jobs.count(session) == 1


def test_bodies_of_other_types_are_refused_as_such(service: LiveService) -> None:
    job = service.queue()
    with service.http(service.key("admin")) as http:
        for path in ("/jobs", "/lookup", f"/jobs/{job}/resume"):
            for kind in ("text/plain", ""):
                refused = http.post(path, content=b"{}", headers={"Content-Type": kind})
                assert (refused.status_code, refused.json()["code"]) == (
                    415,
                    "unsupported_media_type",
                ), path
        assert http.post(f"/jobs/{job}/cancel").status_code == 200
        assert http.post(f"/jobs/{job}/resume").status_code == 200, (
            "no body at all is none of another type"
        )


def test_a_wrong_method_is_told_all_that_are_right(service: LiveService) -> None:
    with service.http(service.key("admin")) as http:
        refused = http.delete("/jobs")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD, POST")


def test_when_a_key_was_last_used_is_known(service: LiveService) -> None:
    token = service.key("read")
    with service.http(token) as http:
        assert http.get("/jobs").status_code == 200
    with service.database.read() as session:
        stored_key = next(key for key in keys.list_all(session) if key.id == token.split("_")[1])
    assert stored_key.last_used_at is not None and datetime.now(
        UTC
    ) - stored_key.last_used_at < timedelta(minutes=5)
