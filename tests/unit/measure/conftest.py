"""What the tests of measuring share: compiled libraries and a prepared runner, each
made once a module."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.hostile_kernels import addition, compile_kernel
from tuner.measure.assignment import Assignment, Lane, Request
from tuner.measure.runner import RunnerProcess

Library = Callable[[str], str]
TIMEOUT_S, PATIENT_S = (
    0.8,
    20.0,
)  # of kernels that never end, and of those that do, however slow the machine
ENDLESS = ("endless", "stubborn")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """Path of the library with a behaviour, compiled when first asked for."""
    folder, made = tmp_path_factory.mktemp("kernels"), dict[str, Path]()

    def get(behaviour: str) -> str:
        if behaviour not in made:
            made[behaviour] = compile_kernel(behaviour, folder)
        return str(made[behaviour])

    return get


@pytest.fixture(scope="session")
def lane() -> Lane:
    core = max(os.sched_getaffinity(0))
    return Lane(name=f"cpu:{core}", cores=(core,))


@pytest.fixture(scope="module")
def runner(lane: Lane) -> Iterator[RunnerProcess]:
    with RunnerProcess() as process:
        process.prepare(Assignment(workload=addition(), lane=lane))
        yield process


@pytest.fixture
def request_for(library: Library) -> Callable[..., Request]:
    def make(behaviour: str, **options: object) -> Request:
        timeout_s = TIMEOUT_S if behaviour in ENDLESS else PATIENT_S
        given = {
            "name": behaviour,
            "library": library(behaviour),
            "symbol": "kernel",
            "timeout_s": timeout_s,
            "promising_s": 0.0,  # no timing waits for a core that other tests slow down
            **options,
        }
        return Request(**given)  # type: ignore[arg-type]  # tests name the fields

    return make
