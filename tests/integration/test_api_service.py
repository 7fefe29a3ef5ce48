"""The service as a process and as a neighbour: rate limits, auth off, an orderly stop,
logs without secrets, a quick start."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
import structlog

from tests.support.live_service import MATMUL, options_for, serving
from tuner.api import logs
from tuner.api.app import BUSY_TIMEOUT_S
from tuner.api.server import AddressInUse, listen
from tuner.client import Client, Retries, ServiceError, ServiceUnreachable
from tuner.db.engine import open_database
from tuner.errors import UsageError

SERVE = """
import sys
from pathlib import Path
from api.options import ServiceOptions
from api.server import serve
serve(ServiceOptions(database_url=sys.argv[1], artifacts=Path(sys.argv[2]), port=0), started=lambda url: print(url, flush=True))
"""  # noqa: E501


def test_a_key_that_asks_too_often_is_told_when_to_come_back(tmp_path: Path) -> None:
    options = options_for(
        f"sqlite:///{tmp_path}/tuner.sqlite",
        tmp_path,
        requests_per_s=1.0,
        request_burst=25,
        submit_cost=10,
    )
    with serving(options) as live:
        token = live.key("submit")
        with live.http(token) as http:
            statuses = [http.post("/jobs", json={"workload": MATMUL}).status_code for _ in range(3)]
            assert statuses == [202, 202, 429]
            refused = http.post("/jobs", json={"workload": MATMUL})
            assert refused.json()["code"] == "rate_limited" and refused.json()["retryable"]
            assert 1 <= int(refused.headers["retry-after"]) <= 10
        with live.http(live.key("read")) as http:  # another key has its own bucket
            assert http.get("/jobs").status_code == 200
        assert live.client(live.key("admin")).health().status == "ok"


def test_refused_credentials_are_counted_by_address(tmp_path: Path) -> None:
    options = options_for(
        f"sqlite:///{tmp_path}/tuner.sqlite",
        tmp_path,
        failed_login_burst=3,
        failed_logins_per_s=0.01,
    )
    with serving(options) as live:
        good = live.key("read")
        with live.http("tk_abc_def") as http:
            assert [http.get("/jobs").status_code for _ in range(5)] == [401, 401, 401, 429, 429]
        with live.http(good) as http:
            assert (
                http.get("/jobs").status_code == 200
            )  # who has a key is not locked out by those who guess


def test_without_keys_only_this_machines_own_pages_and_programs_are_answered(
    tmp_path: Path,
) -> None:
    with (
        serving(options_for(f"sqlite:///{tmp_path}/tuner.sqlite", tmp_path, auth="off")) as live,
        live.http() as http,
    ):
        assert http.post("/jobs", json={"workload": MATMUL}).status_code == 202
        assert http.get("/jobs", headers={"Host": "evil.example"}).status_code == 403
        assert (
            http.post(
                "/jobs", json={"workload": MATMUL}, headers={"Origin": "https://evil.example"}
            ).status_code
            == 403
        )
        assert (
            http.post("/jobs", json={"workload": MATMUL}, headers={"Origin": live.url}).status_code
            == 202
        )
        assert len(http.get("/jobs").json()["items"]) == 2


def test_auth_off_beyond_loopback_cannot_be_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"0\.0\.0\.0"):
        options_for(f"sqlite:///{tmp_path}/tuner.sqlite", tmp_path, auth="off", host="0.0.0.0")


@pytest.mark.slow
def test_a_busy_database_is_a_clear_state_and_nothing_is_lost(tmp_path: Path) -> None:
    with serving(options_for(f"sqlite:///{tmp_path}/tuner.sqlite", tmp_path)) as live:
        token = live.key("submit")
        with live.http(token) as http:
            job = http.post("/jobs", json={"workload": MATMUL}).json()["id"]
            other = open_database(live.options.database_url)
            with other.write():  # holds the write lock for as long as the block
                started = time.monotonic()
                refused = http.post("/jobs", json={"workload": MATMUL})
                assert time.monotonic() - started < 3 * BUSY_TIMEOUT_S
                assert (
                    refused.status_code,
                    refused.json()["code"],
                    refused.json()["retryable"],
                ) == (503, "database_busy", True)
                assert int(refused.headers["retry-after"]) > 0
                assert "sqlite" not in refused.text.lower() and str(tmp_path) not in refused.text
                assert http.get(f"/jobs/{job}").json()["state"] == "queued"
                assert http.get("/health/live").status_code == 200
            other.close()
            assert http.post("/jobs", json={"workload": MATMUL}).status_code == 202
            assert len(http.get("/jobs").json()["items"]) == 2


def test_a_taken_port_is_one_clear_error() -> None:
    with listen("127.0.0.1", 0) as first:
        first.listen()
        with pytest.raises(AddressInUse, match="--port"):
            listen("127.0.0.1", first.getsockname()[1])


@pytest.mark.serial
def test_answers_are_not_held_back_to_fill_packets(tmp_path: Path) -> None:
    with listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP  # what asyncio looks at
    with (
        serving(options_for(f"sqlite:///{tmp_path}/tuner.sqlite", tmp_path)) as live,
        live.http() as http,
    ):
        times = []
        for _ in range(60):
            started = time.monotonic()
            http.get("/health/live")
            times.append(time.monotonic() - started)
    # Held back, each one takes 0.04 s, the delay of an acknowledgement, but for the first few of a
    # connection. A busy machine delays some, not three of four.
    assert sorted(times[20:])[10] < 0.03


def test_it_starts_without_a_compiler_and_stops_in_good_order(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    command = [
        sys.executable,
        "-c",
        SERVE,
        f"sqlite:///{tmp_path}/tuner.sqlite",
        str(tmp_path / "artifacts"),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            url = process.stdout.readline().strip()
            with httpx.Client(base_url=url, verify=False) as http:
                for _ in range(100):
                    try:
                        assert http.get("/v1/health/ready").json()["status"] == "ok"
                        break
                    except httpx.ConnectError:
                        time.sleep(0.05)
                maps = Path(f"/proc/{process.pid}/maps").read_text()
                process.send_signal(signal.SIGTERM)
                lines = process.stderr.read().splitlines()
            # uvicorn gives the signal back once it has stopped, so that whoever waits
            # sees the cause.
            assert process.wait(timeout=20) in (0, -signal.SIGTERM)
        finally:
            if process.poll() is None:
                process.kill()
    assert not any(library in maps for library in ("libtvm", "_raylet", "libxgboost", "libtorch"))
    events = [json.loads(line) for line in lines if line.startswith("{")]
    assert {"listening", "request", "stopping"} <= {event["event"] for event in events} | {
        "request"
    }
    assert not any("Traceback" in line for line in lines)


def test_logs_carry_ids_and_no_secrets(tmp_path: Path) -> None:
    stream = io.StringIO()
    before = structlog.get_config()
    logs.configure("json", stream=stream)
    try:
        with serving(options_for(f"sqlite:///{tmp_path}/tuner.sqlite", tmp_path)) as live:
            token = live.key("submit")
            with live.http(token) as http:
                answer = http.post(
                    "/jobs",
                    json={"workload": MATMUL},
                    headers={"X-Request-ID": "from-the-caller-1"},
                )
                http.get("/jobs", headers={"X-Request-ID": 'x" injected'})
    finally:
        structlog.configure(**before)
    text = stream.getvalue()
    assert token.rpartition("_")[2] not in text
    lines = [json.loads(line) for line in text.splitlines()]
    accepted = next(line for line in lines if line["event"] == "job_accepted")
    assert (accepted["request_id"], accepted["job"]) == ("from-the-caller-1", answer.json()["id"])
    assert all("injected" not in line.get("request_id", "") for line in lines)
    requests = [line for line in lines if line["event"] == "request"]
    assert [line["status"] for line in requests] == [202, 200]


def test_the_client_repeats_what_may_be_repeated_and_nothing_else() -> None:
    calls: list[httpx.Request] = []
    problem = {"detail": "busy", "code": "database", "retryable": True}

    def answer(request: httpx.Request) -> httpx.Response:
        calls.append(request)
        if request.url.path.endswith("/jobs/bad"):
            return httpx.Response(
                404, json={"detail": "no", "code": "not_found", "retryable": False}
            )
        if len(calls) < 3:
            raise httpx.ConnectError("refused")
        return httpx.Response(503, json=problem, headers={"Retry-After": "7"})

    pauses: list[float] = []
    retries = Retries(attempts=4, first_pause_s=0.5)
    client = Client(
        "http://x",
        key="k",
        retries=retries,
        transport=httpx.MockTransport(answer),
        sleep=pauses.append,
    )
    with client, pytest.raises(ServiceError) as caught:
        client.submit({"op": "matmul"})
    assert (caught.value.status, caught.value.code, caught.value.retryable) == (
        503,
        "database",
        True,
    )
    assert pauses == [0.5, 1.0, 7.0]
    assert len({request.headers["idempotency-key"] for request in calls}) == 1 and len(calls) == 4
    calls.clear()
    client = Client(
        "http://x", retries=retries, transport=httpx.MockTransport(answer), sleep=pauses.append
    )
    with client, pytest.raises(ServiceError):
        client.job("bad")
    assert len(calls) == 1


def test_an_unreachable_service_is_named() -> None:
    client = Client("http://127.0.0.1:9", retries=Retries(attempts=2, first_pause_s=0.0))
    with client, pytest.raises(ServiceUnreachable, match=r"127\.0\.0\.1:9.*running there"):
        client.health()
