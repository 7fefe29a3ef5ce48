"""Regions whose kernels a service has searched: compiled here, from its configs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tuner.app.models.region_service as region_service
from tests.support.targets import host_target
from tuner.app.models.region_library import region_library
from tuner.app.models.region_service import MEDIA_TYPE, ServiceNotDone
from tuner.client import ServiceUnreachable
from tuner.models.graph import Graph
from tuner.models.graph_archive import is_packed, packed
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.elementwise import elementwise
from tuner.models.reading import read_graph
from tuner.models.region_cache import SYMBOL
from tuner.models.workloads import workloads_of
from tuner.runtime.loader import Library
from tuner.settings import Settings, load_settings
from tuner.spaces.by_target import space_of
from tuner.workers.jobs.options import Interruption
from tuner.workers.jobs.progress import ModelRound


def region() -> Graph:
    builder = GraphBuilder()
    x = builder.input([64, 64], "float32")
    return builder.graph([elementwise("scaled", lambda e: e * 3, x)], ["in0", "out0"])


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    given = {"data_dir": str(tmp_path), "threads": 1, "trials": 8, "server": "http://service"}
    return load_settings(given, given_as="option {}").values


class Service:
    """A client of a service whose job ends as it is told; keeps what was asked."""

    def __init__(self, config: Any, state: str = "succeeded", error: Exception | None = None):
        self.config, self.state, self.error = config, state, error
        self.submitted: list[dict[str, Any]] = []
        self.cancelled: list[str] = []

    def __call__(self, server: str, key: str | None) -> Service:
        assert (server, key) == ("http://service", None)
        return self

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def submit_model(self, content: bytes, **options: Any) -> Any:
        self.submitted.append(options)
        self.graph = read_graph(content, {})
        return SimpleNamespace(id="j1")

    def events(self, job: str) -> Iterator[Any]:
        yield SimpleNamespace(kind="trial")
        if self.error is not None:
            raise self.error
        yield SimpleNamespace(kind=self.state)

    def cancel(self, job: str) -> None:
        self.state = "cancelled"
        self.cancelled.append(job)

    def job(self, job: str) -> Any:
        tasks = [
            SimpleNamespace(workload=SimpleNamespace(key=part.workload.key), kernel="k1")
            for part in workloads_of(self.graph)
        ]
        return SimpleNamespace(id=job, state=self.state, error=None, tasks=tasks)

    def kernel(self, kernel: str) -> Any:
        times = {"median_s": 1e-6, "ci95_s": (1e-6, 1e-6), "max_rel_error": 0.0}
        return SimpleNamespace(config=self.config, **times)


def config_of(graph: Graph) -> Any:
    """A config as JSON has it, which is not the default schedule."""
    (part,) = workloads_of(graph)
    space = space_of(part.workload, host_target(), 1).space
    chosen = space.config(space.sample(np.random.default_rng(1), 1)[0])
    return {name: list(v) if isinstance(v, tuple) else v for name, v in chosen.items()}


def test_a_graph_is_told_from_a_file_and_read_as_it_was() -> None:
    content = packed(region())
    assert is_packed(content) and not is_packed(b"\x08\x07\x12\x04")
    read = read_graph(content, {})
    keys = [[part.workload.key for part in workloads_of(graph)] for graph in (region(), read)]
    assert keys[0] == keys[1]


@pytest.mark.slow
@pytest.mark.parametrize("given", ["tuned", "default", "of another machine"])
def test_a_region_is_compiled_from_the_configs_of_a_service(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, tmp_path: Path, given: str
) -> None:
    configs = {"tuned": config_of(region()), "default": {}, "of another machine": {"knob": 3}}
    service, seen = Service(configs[given]), list[Any]()
    monkeypatch.setattr(region_service, "Client", service)
    path = tmp_path / "region.so"
    path.write_bytes(region_library(region(), settings, observer=seen.append))
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    np.testing.assert_allclose(Library(path).function(SYMBOL)(x), 3 * x, rtol=1e-6)
    (options,) = service.submitted
    assert options["media_type"] == MEDIA_TYPE and options["trials"] == 8
    assert seen == [ModelRound(trials=1, budget=8, searched=1, kernels=1)]


def test_processes_that_want_the_same_region_share_a_job(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    keys = []
    for changed in ({}, {}, {"trials": 9}):
        service = Service({}, "failed")
        monkeypatch.setattr(region_service, "Client", service)
        with pytest.raises(ServiceNotDone, match="job j1 of http://service failed"):
            region_library(region(), settings.model_copy(update=changed))
        keys.append(service.submitted[0]["idempotency_key"])
    assert keys[0] == keys[1] != keys[2]


def test_a_service_that_goes_away_ends_the_attempt(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(
        region_service, "Client", Service({}, error=ServiceUnreachable("no answer"))
    )
    with pytest.raises(ServiceUnreachable, match="no answer"):
        region_library(region(), settings)


def test_the_job_is_taken_back_where_the_model_ends(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    service = Service({})
    monkeypatch.setattr(region_service, "Client", service)
    with pytest.raises(ServiceNotDone, match="cancelled: it was stopped"):
        region_library(region(), settings, interrupt=lambda: Interruption.CANCEL)
    assert service.cancelled == ["j1"]


def test_a_job_that_waits_for_others_is_taken_back_too(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    """It has no events before."""

    class Waiting(Service):
        over = threading.Event()

        def events(self, job: str) -> Iterator[Any]:
            self.over.wait(20)
            yield from ()

        def cancel(self, job: str) -> None:
            super().cancel(job)
            self.over.set()

    service, looks = Waiting({}, "queued"), count()
    monkeypatch.setattr(region_service, "Client", service)
    with pytest.raises(ServiceNotDone, match="cancelled: it was stopped"):
        region_library(
            region(), settings, interrupt=lambda: Interruption.CANCEL if next(looks) else None
        )
    assert service.cancelled == ["j1"]
