"""A real service for tests: uvicorn on a free loopback port in a thread, a real
database, real keys, the real client."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from tests.support.database_samples import sample_target
from tuner.api.app import BUSY_TIMEOUT_S, create_app
from tuner.api.options import ServiceOptions
from tuner.api.server import listen, server_of
from tuner.client import Client, Retries
from tuner.db import jobs, keys, leases, targets, workloads
from tuner.db.engine import Clock, Database, open_database
from tuner.db.leases import Lease
from tuner.export.artifacts import ArtifactStore
from tuner.workload.spec import to_document, workload_from_params

MATMUL = {"op": "matmul", "params": {"M": 16, "N": 8, "K": 4}}
NOTATION = (
    "kernel mlp(A: f32[M, K], B: f32[K, N]) -> (C: f32[M, N]) {\n  C[i, j] += A[i, k] * B[k, j]\n}"
)


@dataclass(frozen=True, kw_only=True)
class LiveService:
    url: str
    options: ServiceOptions
    database: Database
    store: ArtifactStore
    opened: contextlib.ExitStack

    def key(self, *scopes: str, quota: int | None = None) -> str:
        """A new key's token."""
        with self.database.write() as session:
            return keys.create(session, name="test", scopes=scopes or ("submit",), quota=quota)[1]

    def client(self, token: str | None = None) -> Client:
        """Closed with the service."""
        client = Client(
            self.url,
            key=token or self.key(),
            retries=Retries(first_pause_s=0.01, longest_pause_s=0.1),
        )
        return self.opened.enter_context(client)

    def http(self, token: str | None = None, **options: Any) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # Without TLS no certificates are needed, and loading them takes longer than most tests.
        return httpx.Client(
            base_url=self.url + "/v1", headers=headers, timeout=30, verify=False, **options
        )

    def queue(self, owner: str | None = None, params: Collection[int] = (16, 8, 4)) -> str:
        """The id of a queued matmul, put there without HTTP."""
        workload = workload_from_params("matmul", dict(zip("MNK", params, strict=True)))
        with self.database.write() as session:
            key = workloads.remember(session, workload, to_document(workload))
            target = targets.remember(session, sample_target())
            new = jobs.NewJob(workloads=(key,), target=target, threads=1, trials=4, owner=owner)
            return jobs.create(session, new)[0].id

    def claim(self, job: str) -> Lease:
        with self.database.write() as session:
            return leases.claim(session, job, owner="test")[1]


def options_for(url: str, folder: Path, **changes: Any) -> ServiceOptions:
    base = ServiceOptions(
        database_url=url, artifacts=folder / "artifacts", port=0, target=sample_target()
    )
    return replace(base, **changes)


@contextlib.contextmanager
def serving(options: ServiceOptions, *, clock: Clock | None = None) -> Iterator[LiveService]:
    """Serves for the block. The port stays the same for a block inside that passes the
    same `options` with `port` set. `clock` is the database's."""
    database = open_database(options.database_url, busy_timeout_s=BUSY_TIMEOUT_S, clock=clock)
    listener = listen(options.host, options.port)
    server = server_of(create_app(options, database=database), options)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="service")
    thread.start()
    try:
        wait_for(lambda: server.started)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        store = ArtifactStore(options.artifacts)
        with contextlib.ExitStack() as opened:
            yield LiveService(
                url=url, options=options, database=database, store=store, opened=opened
            )
    finally:
        server.should_exit = True
        thread.join(timeout=30)
        listener.close()
        database.close()
        assert not thread.is_alive(), "the service did not stop"


def wait_for(condition: Any, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
