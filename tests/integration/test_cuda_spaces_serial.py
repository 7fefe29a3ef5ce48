"""Every operator's space for GPUs, sampled: scheduled modules run on the CPU with bound
loops made serial give the reference.

Each sketch then means what it should. Races, barriers and the lowering of reductions
across threads are not in this; only a GPU shows them. Instructions of tensor cores are
replaced by what they are described to do. Some of the points run with the others, two
hundred and more of every operator among the long ones.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from tests.support.cuda_serial import SPECS, by_operator, run_serially
from tuner.errors import IllegalSchedule
from tuner.spaces.by_target import space_of
from tuner.target.cuda import cuda_target
from tuner.workload.catalogue import OPERATORS
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import error_bound, evaluate, magnitude, max_rel_error
from tuner.workload.spec import parse_spec

pytestmark = pytest.mark.slow

TARGET = cuda_target("sm_80", lambda fingerprint: "declared")
QUICK = 4  # points of each spec
LONG = 200  # points of each operator
MOST_ILLEGAL = 0.02  # share of an operator's points that TVM may refuse


def check(spec: str, points: int, seed: int) -> Counter[str]:
    """Samples points of a spec's space and runs them; the reasons of those that have no
    schedule."""
    workload = parse_spec(spec)
    expression = workload.expression
    arrays = make_inputs(expression, seed=7, kind="normal")
    want, scale = evaluate(expression, arrays), magnitude(expression, arrays)
    bound = error_bound(expression)
    space = space_of(workload, TARGET, 1)
    illegal: Counter[str] = Counter()
    for point in space.space.sample(
        np.random.default_rng([zlib.crc32(spec.encode()), seed]), points
    ):
        config = space.space.config(point)
        try:
            got = run_serially(workload, space.program(config), arrays)
        except IllegalSchedule as error:
            illegal[str(error)[:200]] += 1
            continue
        off = max_rel_error(expression, got, want, scale)
        assert off <= bound, f"{spec} {config} is {off:.3g} off, more than {bound:.3g}"
    return illegal


def checked(specs: Sequence[str], points: int, seed: int) -> None:
    illegal: Counter[str] = Counter()
    for spec in specs:
        illegal += check(spec, points, seed)
    assert illegal.total() <= MOST_ILLEGAL * points * len(specs), illegal


def test_every_operator_is_here_and_two_hundred_points() -> None:
    assert set(by_operator()) == set(OPERATORS)
    assert QUICK * len(SPECS) >= 200


@pytest.mark.parametrize("operator", by_operator())
def test_sampled_points_compute_the_expression(operator: str) -> None:
    checked(by_operator()[operator], QUICK, seed=0)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("operator", by_operator())
def test_two_hundred_points_of_each_operator_compute_the_expression(operator: str) -> None:
    specs = by_operator()[operator]
    checked(specs, -(-LONG // len(specs)), seed=1)
