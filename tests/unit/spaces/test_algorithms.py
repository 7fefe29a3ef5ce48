"""What little work several threads are given one of them may do alone."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.checked_kernels import check_programs
from tests.support.spaces import shared_space
from tests.support.targets import ZEN5
from tuner.cost_model.features import ESTIMATE, featurizer
from tuner.spaces.program.marks import Parallel
from tuner.spaces.program.program import Program
from tuner.spaces.rewrite.algorithm import SERIAL_SUFFIX
from tuner.workload.spec import parse_spec

LITTLE = "softmax:M=16,N=64"


def offered(spec: str, threads: int) -> list[str]:
    space = shared_space(spec, ZEN5, threads).space
    return [sketch.name for sketch in space.combinations if SERIAL_SUFFIX in sketch.name]


def is_shared(program: Program) -> bool:
    return any(isinstance(step, Parallel) for step in program.steps)


@pytest.mark.parametrize(
    ("spec", "is_offered"),
    [(LITTLE, True), ("matmul:M=64,N=64,K=64", True), ("matmul:M=256,N=256,K=256", False)],
)
def test_one_thread_alone_is_offered_where_there_is_little_to_do(
    spec: str, is_offered: bool
) -> None:
    assert bool(offered(spec, 2)) is is_offered
    assert offered(spec, 1) == []


@pytest.mark.parametrize(
    "spec", [LITTLE, "matmul:M=15,N=18,K=33", "dense:M=4,N=20,K=30,bias=true,act=relu"]
)
def test_its_kernels_start_no_threads_and_compute_the_same(spec: str) -> None:
    space = shared_space(spec, ZEN5, 2)
    points = space.space.sample(np.random.default_rng(7), 60)
    configs = [space.space.config(point) for point in points]
    alone = [space.program(config) for config in configs if SERIAL_SUFFIX in str(config["sketch"])]
    assert alone and not any(map(is_shared, alone))
    assert any(is_shared(space.program(config)) for config in configs)
    check_programs(parse_spec(spec), alone[:3])


def test_an_estimate_knows_who_works_alone() -> None:
    space = shared_space(LITTLE, ZEN5, 2)
    points = space.space.sample(np.random.default_rng(1), 200)
    alone = np.array(
        [SERIAL_SUFFIX in str(space.space.config(point)["sketch"]) for point in points]
    )
    features = featurizer(space)(points)
    assert (
        len(np.unique(features[alone, ESTIMATE - 1]))
        == len(np.unique(features[~alone, ESTIMATE - 1]))
        == 1
    )
    assert features[alone, ESTIMATE - 1].max() < features[~alone, ESTIMATE - 1].min()
    assert features[alone, ESTIMATE].min() > features[~alone, ESTIMATE].min()
