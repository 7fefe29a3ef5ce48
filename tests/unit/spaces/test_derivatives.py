"""Programs of derivatives have spaces whose configs compute what the reference does."""

from __future__ import annotations

import pytest

from tests.support.programs import NARROW, check
from tuner.spaces.by_target import space_of
from tuner.workload.derivative.workload import derivative_of
from tuner.workload.spec import parse_spec


@pytest.mark.parametrize(
    "spec",
    [
        "dense:M=3,N=4,K=5,bias=true,act=gelu",
        "softmax:M=3,N=5",
        "layer_norm:M=3,N=5",
        "conv2d:N=1,H=5,W=4,CI=2,CO=3,KH=3,KW=3,pad=1,stride=2",
        "max_pool2d:N=1,H=5,W=5,C=2,KH=3,KW=3,stride=2,pad=1",
        "embedding:N=5,V=4,D=3",
    ],
)
def test_configs_compute_the_derivative(spec: str) -> None:
    check(derivative_of(parse_spec(spec)), 2)


def test_a_convolutions_derivative_is_tiled_as_convolutions_are() -> None:
    derivative = derivative_of(parse_spec("conv2d:N=1,H=14,W=14,CI=32,CO=32,KH=3,KW=3,pad=1"))
    names = {sketch.name for sketch in space_of(derivative, NARROW, 1).space.combinations}
    assert names and all("dX:tile" in name and "dW:tile" in name for name in names)
