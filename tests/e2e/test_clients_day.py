"""A client's day at a real service: twenty jobs of two keys, followed through a line
that keeps dropping, run and checked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tuner
from tests.e2e.cable import Cable, cable
from tests.support.service_log import listening
from tuner.api.schemas import JobAnswer
from tuner.client import Client, Retries, ServiceError
from tuner.db import keys
from tuner.db.engine import open_database

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500), pytest.mark.xdist_group("fleet")]

ROOT = Path(tuner.__file__).parent.parent
DAY_S = 1200.0
BETWEEN_CUTS_S = 4.0
CANCELLED = 2
Array = NDArray[Any]

WORKLOADS: list[dict[str, Any]] = [
    {"op": op, "params": params}
    for place in range(7)
    for op, params in (
        ("matmul", {"M": 16 + place, "N": 24, "K": 8 + place}),
        ("softmax", {"M": 9 + place, "N": 31}),
        ("elementwise", {"M": 11 + place, "N": 40, "act": "relu"}),
    )
][:20]


@dataclass(kw_only=True)
class Customer:
    """Who has a key, the jobs asked for with it, and what was heard of each."""

    client: Client
    jobs: list[JobAnswer] = field(default_factory=list)
    heard: dict[str, list[int]] = field(default_factory=dict)  # numbers of events, by job

    def follow(self, job: str) -> None:
        numbers = self.heard.setdefault(job, [])
        numbers.extend(event.sequence for event in self.client.events(job))


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/tuner.sqlite"
    return str(request.getfixturevalue("postgres_server").new_database())


@contextmanager
def service(url: str, folder: Path) -> Iterator[int]:
    """`tuner serve` on a free port."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("TUNER_")
    }
    environment |= {
        "XDG_DATA_HOME": str(folder / "data"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-P", "-m", "tuner", "serve", "--port", "0", "--db", url]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        yield int(listening(folder / "log", process).rpartition(":")[2])
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)


def tokens(url: str) -> list[str]:
    database = open_database(url)
    with database.write() as session:
        made = [
            keys.create(session, name=name, scopes=("submit",))[1] for name in ("first", "second")
        ]
    database.close()
    return made


def test_a_clients_day(url: str, tmp_path: Path) -> None:
    with service(url, tmp_path) as port, cable(port) as line:
        customers = [Customer(client=patient(line, token)) for token in tokens(url)]
        for place, workload in enumerate(WORKLOADS):
            customer = customers[place % 2]
            customer.jobs.append(
                customer.client.submit(workload, trials=2, strategy="random", seed=place)
            )
        for job in customers[1].jobs[-CANCELLED:]:
            assert customers[1].client.cancel(job.id).state in ("cancelled", "cancelling")
        watched(customers, line)
        for customer in customers:
            assert_seen(customer)
            customer.client.close()


def patient(line: Cable, token: str) -> Client:
    return Client(
        f"http://{line.host}",
        key=token,
        retries=Retries(attempts=400, first_pause_s=0.05, longest_pause_s=0.5),
    )


def watched(customers: list[Customer], line: Cable) -> None:
    """Every job followed to its end, while the line is cut again and again."""
    threads = [
        threading.Thread(target=customer.follow, args=(job.id,), name=job.id)
        for customer in customers
        for job in customer.jobs
    ]
    for thread in threads:
        thread.start()
    cuts, waited_s = 0, 0.0
    while any(thread.is_alive() for thread in threads) and waited_s < DAY_S:
        for thread in threads:
            thread.join(timeout=BETWEEN_CUTS_S / len(threads))
        waited_s += BETWEEN_CUTS_S
        line.cut()
        cuts += 1
        line.mend()
    assert not any(thread.is_alive() for thread in threads), "not all jobs have ended"
    assert cuts >= 3


def assert_seen(customer: Customer) -> None:
    own = {job.id for job in customer.jobs}
    ended = {job.id: job for job in customer.client.jobs() if job.kind == "tune"}
    assert set(ended) == own  # nobody else's
    states = [job.state for job in ended.values()]
    assert (
        states.count("succeeded") + states.count("cancelled") == len(own)
        and states.count("cancelled") <= CANCELLED
    )
    for job in ended.values():
        assert customer.heard[job.id] == list(range(1, job.last_event + 1))  # none lost, none twice
        if job.state == "succeeded":
            assert_right(customer.client, job)


def assert_right(client: Client, job: JobAnswer) -> None:
    """The kernel that the job ended with is the one looked up; it runs, and NumPy agrees."""
    task = job.tasks[0]
    assert task.kernel is not None and task.trials_done == 2
    op, params = task.workload.op, task.workload.params or {}
    answer = client.lookup({"op": op, "params": params})
    assert (
        answer.source == "exact" and answer.kernel is not None and answer.kernel.id == task.kernel
    )
    assert client.download(task.kernel).is_archive
    arrays, expected = case(
        str(op), {name: value for name, value in params.items() if isinstance(value, int)}
    )
    (output,) = client.run(task.kernel, arrays).values()
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ServiceError):
        client.run(task.kernel, {name: array[:-1] for name, array in arrays.items()})


def case(op: str, params: Mapping[str, int]) -> tuple[dict[str, Array], Array]:
    """Inputs that no trial has seen, and what NumPy makes of them."""
    rng = np.random.default_rng(sum(params.values()))

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    if op == "matmul":
        a, b = normal(params["M"], params["K"]), normal(params["K"], params["N"])
        return {"A": a, "B": b}, a @ b
    x = normal(params["M"], params["N"])
    if op == "elementwise":
        return {"X": x}, np.maximum(x, 0)
    raised = np.exp(x - x.max(axis=1, keepdims=True))
    return {"X": x}, raised / raised.sum(axis=1, keepdims=True)
