"""What a page says a workload could take at best: by the algorithm that needs least, in
operations as they are stated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.measured_target import GPU, TARGET
from tuner.api.dashboard.limits import least_s, roofs, work_of
from tuner.workload.spec import parse_spec

CONVOLUTION = "conv2d:N=1,H=56,W=56,CI=64,CO=64,KH=3,KW=3,pad=1"
PRODUCT = "matmul:M=512,N=512,K=512"


@pytest.mark.parametrize(
    ("spec", "unit", "sooner"), [(CONVOLUTION, "avx512f", 4.0), (PRODUCT, "amx-bf16", 16 / 3)]
)
def test_an_algorithm_that_does_fewer_operations_raises_the_roof(
    spec: str, unit: str, sooner: float
) -> None:
    target = replace(TARGET, isa=(unit,))
    strict, fast = parse_spec(spec), parse_spec(f"{spec},numerics=fast")
    slow, quick = least_s(strict, target, 1), least_s(fast, target, 1)
    assert (
        slow is not None and quick is not None and slow / quick == pytest.approx(sooner, rel=1e-6)
    )
    assert work_of(fast, 1).flops == work_of(strict, 1).flops == strict.expression.flops
    low, high = (roofs(workload, target, 1)[-1] for workload in (strict, fast))
    assert low.bytes_per_s is None and high.flops / low.flops == pytest.approx(sooner, rel=1e-6)


def test_without_limits_nothing_is_said() -> None:
    bare = replace(TARGET, limits=None)
    assert (
        least_s(parse_spec(PRODUCT), bare, 1) is None and roofs(parse_spec(PRODUCT), bare, 1) == ()
    )


def test_the_roofs_of_a_gpu_are_those_of_its_memories_and_its_fastest_unit() -> None:
    roofs_of = roofs(parse_spec(f"{PRODUCT},dtype=float16"), GPU, 1)
    assert [(roof.name, roof.bytes_per_s) for roof in roofs_of] == [
        ("shared memory", 33e12),
        ("L2", 7e12),
        ("memory", 3e12),
        ("arithmetic", None),
    ]
    assert {roof.flops for roof in roofs_of} == {900e12}
    fast = parse_spec(f"{PRODUCT},numerics=fast")
    # Three products of bfloat16 do the work of one of float32.
    assert roofs(fast, GPU, 1)[-1].flops == pytest.approx(300e12, rel=1e-6)
