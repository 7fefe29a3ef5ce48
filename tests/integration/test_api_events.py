"""A job's events over HTTP: all, in order, once, through dropped connections, restarts
of the service and a hundred streams."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from tests.support.live_service import MATMUL, LiveService, options_for, serving, wait_for
from tuner.api.routes import events as stream_route
from tuner.client import Client, Retries
from tuner.db import events, keys, leases, retention
from tuner.db.engine import Database
from tuner.db.leases import Lease


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    folder = tmp_path_factory.mktemp("service")
    with serving(
        options_for(f"sqlite:///{folder}/tuner.sqlite", folder, event_poll_s=0.05)
    ) as live:
        yield live


def note(database: Database, job: str, count: int) -> None:
    with database.write() as session:
        for number in range(count):
            events.append(session, job, "note", {"text": f"<script>{number}</script>\n\ndata: x"})


def finish(database: Database, lease: Lease) -> None:
    with database.write() as session:
        leases.finish(session, lease, "succeeded")


def read_some(service: LiveService, token: str, job: str, count: int, after: int = 0) -> list[int]:
    """The numbers of the first `count` events of a connection that is then dropped."""
    sequences: list[int] = []
    headers = {"Last-Event-ID": str(after)}
    with (
        service.http(token) as http,
        http.stream("GET", f"/jobs/{job}/events", headers=headers) as response,
    ):
        assert response.headers["content-type"].startswith("text/event-stream")
        for line in response.iter_lines():
            if line.startswith("id: "):
                sequences.append(int(line[4:]))
            if len(sequences) == count:
                break
    return sequences


def test_a_finished_job_is_replayed_and_the_stream_ends(service: LiveService) -> None:
    token = service.key("submit")
    client = service.client(token)
    job = client.submit(MATMUL).id
    lease = service.claim(job)
    note(service.database, job, 700)  # more than one batch
    finish(service.database, lease)
    received = list(client.events(job))
    assert [event.sequence for event in received] == list(range(1, 704))
    assert [event.kind for event in received][:2] == ["queued", "running"] and received[
        -1
    ].kind == "succeeded"
    assert received[2].data == {"text": "<script>0</script>\n\ndata: x"}
    with service.http(token) as http:
        assert http.get(f"/jobs/{job}/events", headers={"Last-Event-ID": "703"}).status_code == 204
        assert http.get(f"/jobs/{job}/events", headers={"Last-Event-ID": "x"}).status_code == 422


def test_a_dropped_connection_loses_and_repeats_nothing(service: LiveService) -> None:
    token = service.key("submit")
    job = service.client(token).submit(MATMUL).id
    lease = service.claim(job)
    note(service.database, job, 20)
    first = read_some(service, token, job, 7)
    note(service.database, job, 5)
    second = read_some(service, token, job, 9, after=first[-1])
    finish(service.database, lease)
    rest = [event.sequence for event in service.client(token).events(job, after=second[-1])]
    assert first + second + rest == list(range(1, 29))


def test_a_job_whose_events_were_deleted_has_an_end(service: LiveService) -> None:
    """All of them, and all but the last ones: neither browsers nor clients ask for ever."""
    token = service.key("submit")
    client = service.client(token)
    job = client.submit(MATMUL).id
    lease = service.claim(job)
    note(service.database, job, 3)
    finish(service.database, lease)
    with service.database.write() as session:
        assert retention.drop_events(session, job, limit=4) == 4
    assert [event.sequence for event in client.events(job)] == [5, 6]
    with service.database.write() as session:
        assert retention.drop_events(session, job, limit=4) == 2
    with service.http(token) as http:
        assert http.get(f"/jobs/{job}/events").status_code == 204
    assert list(client.events(job)) == []


class EndsAtOnce(httpx.HTTPTransport):
    """Ends the first stream before its first event, as a service does that shuts down."""

    streams = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/events"):
            self.streams += 1
            if self.streams == 1:
                kind = {"Content-Type": "text/event-stream"}
                return httpx.Response(200, headers=kind, request=request)
        return super().handle_request(request)


def test_a_stream_that_ends_early_loses_no_event_of_a_finished_job(tmp_path: Path) -> None:
    with serving(options_for(f"sqlite:///{tmp_path}/tuner.sqlite", tmp_path)) as service:
        client = Client(service.url, key=service.key("submit"), transport=EndsAtOnce())
        with client:
            job = client.submit(MATMUL).id
            lease = service.claim(job)
            note(service.database, job, 3)
            finish(service.database, lease)
            assert [event.sequence for event in client.events(job)] == list(range(1, 7))


def test_the_client_goes_on_where_it_was_when_the_service_restarts(tmp_path: Path) -> None:
    options = options_for(f"sqlite:///{tmp_path}/tuner.sqlite", tmp_path, event_poll_s=0.05)
    sequences: list[int] = []
    with serving(options) as first:
        token = first.key("submit")
        client = Client(
            first.url,
            key=token,
            retries=Retries(attempts=200, first_pause_s=0.05, longest_pause_s=0.1),
        )
        job = client.submit(MATMUL).id
        lease = first.claim(job)
        reader = threading.Thread(
            target=lambda: sequences.extend(event.sequence for event in client.events(job))
        )
        reader.start()
        note(first.database, job, 3)
        port = int(first.url.rpartition(":")[2])
    with client, serving(replace(options, port=port)) as second:
        note(second.database, job, 3)
        finish(second.database, lease)
        reader.join(timeout=90)
    assert sequences == list(range(1, 10))


@pytest.mark.serial
def test_a_hundred_streams_hear_within_a_second(service: LiveService) -> None:
    """In one of three rounds: others may use the machine meanwhile."""
    token = service.key("admin")
    streams: list[threading.Thread] = []
    rounds: list[list[float]] = []
    owned = [(job := service.queue(), service.claim(job)) for _ in range(100)]
    heard: dict[str, list[float]] = {job: [] for job, _ in owned}

    def follow(http: httpx.Client, job: str) -> None:
        with http.stream("GET", f"/jobs/{job}/events") as response:
            for line in response.iter_lines():
                if line == "event: note":
                    heard[job].append(time.monotonic())
                elif line == "event: succeeded":
                    return

    with service.http(token, limits=httpx.Limits(max_connections=200)) as http:
        for job, _ in owned:
            streams.append(threading.Thread(target=follow, args=(http, job)))
            streams[-1].start()
        wait_for(lambda: "tuner_event_streams 100.0" in http.get("/metrics").text, timeout_s=60)
        while len(rounds) < 3:
            said: dict[str, float] = {}
            for job in heard:
                note(service.database, job, 1)
                said[job] = time.monotonic()
            wait_for(lambda: {len(each) for each in heard.values()} == {len(rounds) + 1}, 60)
            rounds.append(sorted(heard[job][-1] - said[job] for job in heard))
        for _, lease in owned:
            finish(service.database, lease)
        for stream in streams:
            stream.join(timeout=60)
    assert all(len(moments) == 3 for moments in heard.values())
    # The promise is a second; the benchmark has the figure.
    assert any(late[len(late) // 2] < 1.0 and late[-1] < 5.0 for late in rounds), rounds


def test_streams_are_bounded(tmp_path: Path) -> None:
    options = options_for(
        f"sqlite:///{tmp_path}/tuner.sqlite", tmp_path, max_streams=1, event_stream_s=3.0
    )
    with serving(options) as live:
        token = live.key("submit")
        job = live.client(token).submit(MATMUL).id
        with live.http(token) as http, http.stream("GET", f"/jobs/{job}/events") as response:
            lines = response.iter_lines()
            assert next(lines).startswith(":")
            with live.http(token) as other:
                assert other.get(f"/jobs/{job}/events").status_code == 429
            assert any(line == "event: queued" for line in lines)  # and the stream ends by itself


def test_no_key_takes_all_streams_and_a_revoked_one_loses_its_own(tmp_path: Path) -> None:
    options = options_for(
        f"sqlite:///{tmp_path}/tuner.sqlite", tmp_path, max_key_streams=1, event_ping_s=0.2
    )
    with serving(options) as live:
        token, other = live.key("submit"), live.key("admin")
        job = live.client(token).submit(MATMUL).id
        with live.http(token) as http, http.stream("GET", f"/jobs/{job}/events") as response:
            lines = response.iter_lines()
            assert next(lines).startswith(":")
            with live.http(token) as again:
                refused = again.get(f"/jobs/{job}/events")
                assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
            with live.http(other) as http, http.stream("GET", f"/jobs/{job}/events") as foreign:
                assert foreign.status_code == 200
            with live.database.write() as session:
                keys.revoke(session, token.split("_")[1])
            assert all("succeeded" not in line for line in lines)  # ends although the job has not


def test_streams_that_are_opened_at_once_share_the_limit(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tuner.sqlite"
    with serving(options_for(url, tmp_path, max_key_streams=3)) as live:
        token = live.key("submit")
        job = live.client(token).submit(MATMUL).id
        all_answered = threading.Barrier(12)

        def status(_: int) -> int:
            with live.http(token) as http, http.stream("GET", f"/jobs/{job}/events") as answer:
                all_answered.wait(timeout=20)
                return answer.status_code

        with ThreadPoolExecutor(12) as pool:
            assert sorted(pool.map(status, range(12))) == [200] * 3 + [429] * 9


def test_a_client_that_reads_nothing_keeps_no_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_route, "UNREAD_S", 0.1)
    url = f"sqlite:///{tmp_path}/tuner.sqlite"
    with serving(options_for(url, tmp_path, event_stream_s=0.1)) as live:
        token = live.key("submit")
        job = live.client(token).submit(MATMUL).id
        with live.database.write() as session:
            for _ in range(200):
                events.append(session, job, "note", {"text": "x" * 60_000})
        with socket.socket() as client, live.http(token) as http:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", int(live.url.rpartition(":")[2])))
            head = f"GET /v1/jobs/{job}/events HTTP/1.1\r\nHost: x\r\n"
            client.sendall(f"{head}Authorization: Bearer {token}\r\n\r\n".encode())
            assert client.recv(12) == b"HTTP/1.1 200"
            wait_for(lambda: "tuner_event_streams 0.0" in http.get("/metrics").text)
