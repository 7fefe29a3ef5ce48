"""Uploads of models that go wrong or are large: others do not wait, and nothing half-sent stays."""

from __future__ import annotations

import os
import socket
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.live_service import LiveService, options_for, serving, wait_for
from tests.support.server_process import free_port, served, wait_until_ready
from tuner.db import jobs, keys
from tuner.db.engine import open_database
from tuner.export.artifacts import INCOMING

TYPE = "application/octet-stream"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[LiveService]:
    url = f"sqlite:///{tmp_path}/tuner.sqlite"
    with serving(options_for(url, tmp_path, models=True)) as live:
        yield live


def stored_files(service: LiveService) -> list[Path]:
    folders = service.store.directory.glob(f"{INCOMING}*")
    return [*folders, *(path for path in service.store.directory.rglob("*") if path.is_file())]


def unfinished_jobs(service: LiveService) -> int:
    with service.database.read() as session:
        return jobs.count(session)


def begun_upload(url: str, key: str, promised: int, sent: int) -> socket.socket:
    """A connection on which so many bytes of a model were promised and sent."""
    address = urlsplit(url)
    assert address.hostname is not None and address.port is not None
    connection = socket.create_connection((address.hostname, address.port), timeout=30)
    head = (
        f"POST /v1/models HTTP/1.1\r\nHost: {address.netloc}\r\n"
        f"Authorization: Bearer {key}\r\nContent-Type: {TYPE}\r\n"
        f"Content-Length: {promised}\r\n\r\n"
    )
    connection.sendall(head.encode() + b"x" * sent)
    return connection


def test_a_client_that_leaves_within_its_upload_is_no_error_of_the_service(
    service: LiveService,
) -> None:
    begun_upload(service.url, service.key(), 1000, 10).close()
    with service.http(service.key("read")) as http:

        def lines() -> list[str]:
            counted = 'tuner_http_requests_total{method="POST",route="/v1/models"'
            return [each for each in http.get("/metrics").text.splitlines() if counted in each]

        wait_for(lines)
        (line,) = lines()
    assert 'status="400"' in line
    assert unfinished_jobs(service) == 0 and stored_files(service) == []


def test_others_write_while_an_uploaded_file_goes_to_disk(
    service: LiveService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database's lock is free meanwhile, which a slow disk would hold for seconds."""
    flush, waited = os.fsync, list[bool]()
    beside = open_database(service.options.database_url, busy_timeout_s=0.2)

    def flushed(descriptor: int) -> None:
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        if Path(name).parent.name.startswith(INCOMING):
            with beside.write():  # raises DatabaseBusy where the upload holds the lock
                waited.append(True)
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", flushed)
    job = service.client().submit_model(b"a model")
    beside.close()
    assert waited == [True] and job.state == "queued"
    assert [path.read_bytes() for path in stored_files(service)] == [b"a model"]


def test_an_upload_that_is_refused_leaves_no_file(service: LiveService) -> None:
    with service.http(service.key(quota=1)) as http:
        answers = [
            http.post("/models", content=content, headers={"Content-Type": TYPE})
            for content in (b"first", b"second")
        ]
    assert [answer.status_code for answer in answers] == [202, 429]
    assert [path.read_bytes() for path in stored_files(service)] == [b"first"]


def test_large_models_at_once_are_never_whole_in_memory(service: LiveService) -> None:
    def send() -> str:
        with service.http(service.key()) as http:
            body = (bytes(1 << 20) for _ in range(48))
            answer = http.post("/models", content=body, headers={"Content-Type": TYPE})
            return str(answer.json()["id"])

    tracemalloc.start()
    try:
        with ThreadPoolExecutor(2) as clients:
            sent = {each.result() for each in [clients.submit(send) for _ in range(2)]}
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(sent) == 2 and peak_bytes < 24 << 20
    (file,) = stored_files(service)  # of both: their bytes are the same
    assert file.read_bytes() == bytes(48 << 20)


def test_what_was_received_when_the_service_was_killed_is_removed(tmp_path: Path) -> None:
    url, port = f"sqlite:///{tmp_path}/tuner.sqlite", free_port()
    database = open_database(url)
    with database.write() as session:
        key = keys.create(session, name="test", scopes=["submit"])[1]
    database.close()
    options = options_for(url, tmp_path, models=True)
    files = options.artifacts.glob
    with served(url, tmp_path, port):
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", verify=False) as http:
            wait_until_ready(http)
        connection = begun_upload(f"http://127.0.0.1:{port}", key, 1 << 21, 1 << 20)
        wait_for(lambda: [path for path in files("*/bytes") if path.stat().st_size == 1 << 20])
    connection.close()
    (left,) = files(f"{INCOMING}*")
    os.utime(left, (1, 1))  # a younger one may be of a process that is about to lock it
    with serving(options) as live:
        live.client(key).submit_model(b"a model")
        assert [path.read_bytes() for path in stored_files(live)] == [b"a model"]


@pytest.mark.slow
def test_what_is_far_too_large_is_refused_while_another_upload_goes_on(tmp_path: Path) -> None:
    """500 MB, of which the service reads a few before it closes the connection."""
    options = options_for(
        f"sqlite:///{tmp_path}/tuner.sqlite", tmp_path, models=True, max_model_bytes=64 << 20
    )
    with serving(options) as service:
        refused_beside_another(service)


def refused_beside_another(service: LiveService) -> None:
    slow = begun_upload(service.url, service.key(), 1000, 10)
    answers = list[int]()

    def send() -> None:
        with service.http(service.key()) as http:
            body = (bytes(1 << 20) for _ in range(500))
            headers = {"Content-Type": TYPE, "Content-Length": str(500 << 20)}
            answers.append(http.post("/models", content=body, headers=headers).status_code)

    sending = Thread(target=send)
    sending.start()
    sending.join(timeout=60)
    slow.sendall(b"x" * 990)
    assert slow.recv(100).startswith(b"HTTP/1.1 202")
    slow.close()
    assert answers == [413]
    assert [path.stat().st_size for path in stored_files(service)] == [1000]
