"""Regions whose kernels a service has searched: compiled here, from its configs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.database_samples import sample_kernel
from tests.support.live_service import LiveService, options_for, serving
from tests.support.targets import host_target
from tuner.app.models.region_library import region_library
from tuner.app.models.region_service import ServiceNotDone
from tuner.db import events, jobs, leases, promotions, tasks, workloads
from tuner.db.jobs import Job
from tuner.models.graph import Graph
from tuner.models.graph_archive import is_packed, packed
from tuner.models.library.region_cache import SYMBOL
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.elementwise import elementwise
from tuner.models.reading import read_graph
from tuner.models.workloads import workloads_of
from tuner.runtime.loader import Library
from tuner.settings import Settings, load_settings
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Config
from tuner.workers.jobs.options import Interruption
from tuner.workers.jobs.progress import ModelRound
from tuner.workload.spec import to_document


def region() -> Graph:
    builder = GraphBuilder()
    x = builder.input([64, 64], "float32")
    return builder.graph([elementwise("scaled", lambda e: e * 3, x)], ["in0", "out0"])


@pytest.fixture
def service(tmp_path: Path) -> Iterator[LiveService]:
    options = options_for(f"sqlite:///{tmp_path}/service.sqlite", tmp_path, models=True)
    with serving(options) as service:
        yield service


@pytest.fixture
def settings(tmp_path: Path, service: LiveService) -> Settings:
    given = {
        "data_dir": str(tmp_path),
        "threads": 1,
        "trials": 8,
        "server": service.url,
        "token": service.key("submit", "read"),
    }
    return load_settings(given, given_as="option {}").values


def jobs_of(service: LiveService) -> Sequence[Job]:
    with service.database.read() as session:
        return jobs.list_page(session).items


def end(service: LiveService, job: Job, config: Config | None) -> None:
    """Ends a job after one trial: its kernel has the config, without one it has failed."""
    lease = service.claim(job.id)
    (part,) = workloads_of(region())
    with service.database.write() as session:
        key = workloads.remember(session, part.workload, to_document(part.workload))
        tasks.add(session, lease, [key])
        events.append(session, job.id, "trial", {"number": 0})
        if config is None:
            leases.finish(session, lease, jobs.FAILED, error="no kernel was right")
        else:
            new = replace(sample_kernel(session), workload=key, config=config)
            promotions.promote(session, new, lease=lease, position=0)
            leases.finish(session, lease, jobs.SUCCEEDED)


@contextmanager
def worker(service: LiveService, config: Config | None) -> Iterator[None]:
    """Ends every job that is queued meanwhile."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.01):
            for job in jobs_of(service):
                if job.state == jobs.QUEUED:
                    end(service, job, config)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def config_of(graph: Graph) -> Config:
    """A config which is not the default schedule."""
    (part,) = workloads_of(graph)
    space = space_of(part.workload, host_target(), 1).space
    return space.config(space.sample(np.random.default_rng(1), 1)[0])


def test_a_graph_is_told_from_a_file_and_read_as_it_was() -> None:
    content = packed(region())
    assert is_packed(content) and not is_packed(b"\x08\x07\x12\x04")
    read = read_graph(content, {})
    keys = [[part.workload.key for part in workloads_of(graph)] for graph in (region(), read)]
    assert keys[0] == keys[1]


@pytest.mark.slow
@pytest.mark.parametrize("given", ["tuned", "default", "of another machine"])
def test_a_region_is_compiled_from_the_configs_of_a_service(
    service: LiveService, settings: Settings, tmp_path: Path, given: str
) -> None:
    configs: Mapping[str, Config] = {
        "tuned": config_of(region()),
        "default": {},
        "of another machine": {"knob": 3},
    }
    seen = list[Any]()
    path = tmp_path / "region.so"
    with worker(service, configs[given]):
        path.write_bytes(region_library(region(), settings, observer=seen.append))
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    np.testing.assert_allclose(Library(path).function(SYMBOL)(x), 3 * x, rtol=1e-6)
    (job,) = jobs_of(service)
    assert job.trials == 8 and is_packed(service.store.get(str(job.settings[tasks.MODEL])))
    assert seen == [ModelRound(trials=1, budget=8, searched=1, kernels=1)]


def test_processes_that_want_the_same_region_share_a_job(
    service: LiveService, settings: Settings
) -> None:
    message = f"of {service.url} failed: no kernel was right"
    with worker(service, None):
        for changed in ({}, {}, {"trials": 9}):
            with pytest.raises(ServiceNotDone, match=message):
                region_library(region(), settings.model_copy(update=changed))
    assert sorted(job.trials for job in jobs_of(service)) == [8, 9]


@pytest.mark.parametrize("first", [0, 1], ids=["at once", "while it waits for others"])
def test_the_job_is_taken_back_where_the_model_ends(
    service: LiveService, settings: Settings, first: int
) -> None:
    looks = count()

    def interrupt() -> Interruption | None:
        return Interruption.CANCEL if next(looks) >= first else None

    with pytest.raises(ServiceNotDone, match="cancelled: it was stopped"):
        region_library(region(), settings, interrupt=interrupt)
    assert [job.state for job in jobs_of(service)] == [jobs.CANCELLED]
    # The next process goes on with it, with what was measured.
    with worker(service, None), pytest.raises(ServiceNotDone, match="no kernel was right"):
        region_library(region(), settings)
    assert [job.state for job in jobs_of(service)] == [jobs.FAILED]
