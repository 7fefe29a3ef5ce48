"""Regions whose weights are constants: with those that were frozen, and only then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.support.graph_values import graph_outputs  # noqa: E402
from tests.support.torch_regions import Traced  # noqa: E402
from tuner.models.graph_archive import unpacked  # noqa: E402
from tuner.models.passes.fusion import fuse  # noqa: E402
from tuner.torch.call import RegionCall  # noqa: E402
from tuner.torch.frozen_call import FrozenCall, given_weights  # noqa: E402
from tuner.torch.frozen_graph import FrozenGraph, frozen_layouts, weights_among  # noqa: E402
from tuner.torch.layouts import layouts_of  # noqa: E402
from tuner.torch.making import TuningFailed  # noqa: E402
from tuner.torch.partition import Region  # noqa: E402
from tuner.torch.rebuilding import Function  # noqa: E402

nn = torch.nn

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:torch")


class Call:
    """Instead of the call of a region: what it is called with."""

    def __init__(self, *, is_pytorch: bool = False) -> None:
        self.__name__, self.is_pytorch = "region", is_pytorch
        self.given: list[tuple[Any, ...]] = []

    def __call__(self, *tensors: Any) -> Any:
        self.given.append(tensors)
        return (tensors[0],)


def frozen_call() -> tuple[FrozenCall, Call, Call]:
    plain, frozen = Call(is_pytorch=True), Call()
    return FrozenCall(cast(RegionCall, plain), lambda _: cast(RegionCall, frozen)), plain, frozen


def test_weights_are_passed_no_more() -> None:
    call, plain, frozen = frozen_call()
    weight, x, y = nn.Parameter(torch.ones(2)), torch.ones(3), torch.zeros(3)
    assert call.is_pytorch
    for tensor in (x, y):
        call(tensor, weight)
    assert frozen.given == [(x,), (y,)] and not plain.given and not call.is_pytorch


def changed_in_place(weight: Any) -> Any:
    with torch.no_grad():
        weight.mul_(2)
    return weight


def changed_data(weight: Any) -> Any:
    weight.data = weight.data * 2
    return weight


@pytest.mark.parametrize(
    "change", [changed_in_place, changed_data, lambda weight: nn.Parameter(weight.detach())]
)
def test_other_weights_are_passed(change: Callable[[Any], Any]) -> None:
    call, plain, frozen = frozen_call()
    weight, x = nn.Parameter(torch.ones(2)), torch.ones(3)
    call(x, weight)
    other = change(weight)
    call(x, other)
    assert len(frozen.given) == 1 and plain.given == [(x, other)]


@pytest.mark.parametrize(
    "tensors", [(torch.ones(2), torch.ones(3)), (nn.Parameter(torch.ones(2)),)]
)
def test_without_weights_or_other_inputs_nothing_is_frozen(tensors: tuple[Any, ...]) -> None:
    call, plain, frozen = frozen_call()
    call(*tensors)
    assert plain.given == [tensors] and not frozen.given


def test_weights_are_parameters_and_buffers_of_modules() -> None:
    """As Dynamo marks them, for its compilers get no modules."""
    marked: list[bool] = []

    def backend(module: Any, inputs: Any) -> Any:
        weights = weights_among(inputs)
        marked.extend(number in weights for number in range(len(inputs)))
        return module.forward

    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)).eval()
    with torch.no_grad():
        torch.compile(net, backend=backend)(torch.ones(1, 1, 4, 4))
    assert sorted(marked) == [False] + [True] * 6
    with torch.inference_mode():
        assert not weights_among([nn.Parameter(torch.ones(2))])  # nobody counts its changes


def frozen_region(model: Any, x: Any) -> tuple[FrozenGraph, Sequence[Any]]:
    """The graph of a model's only region with constant weights, and the region's inputs."""
    calls: list[tuple[Region, Sequence[Any]]] = []

    def function_of(region: Region, eager: Function) -> Function:
        def function(*tensors: Any) -> Any:
            calls.append((region, tensors))
            return eager(*tensors)

        return function

    with torch.no_grad():
        torch.compile(model, backend=Traced(function_of, 2))(x)
    ((region, tensors),) = calls
    layouts, weights = layouts_of(region), weights_among(tensors)
    return FrozenGraph(graph=region.packed, layouts=layouts, weights=weights), tensors


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_frozen_graph_computes_the_same(dtype: Any) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 5)).to(dtype)
    net.to(memory_format=torch.channels_last)
    x = torch.randn(1, 2, 4, 4).to(dtype)
    frozen, tensors = frozen_region(net, x)
    graph = unpacked(frozen.content)
    (place,) = (number for number in range(len(tensors)) if number not in frozen.weights)
    arguments = frozen.graph.arguments
    assert frozen.arguments == (arguments[place], arguments[-1])
    assert len(frozen_layouts(frozen.layouts, frozen.weights).inputs) == 1
    (got,) = graph_outputs(graph, [x.float().numpy().reshape(graph.inputs[0].shape)])
    right = net(x).detach().float().numpy()
    np.testing.assert_allclose(
        np.asarray(got, np.float32).reshape(right.shape), right, rtol=2e-2, atol=2e-2
    )
    eager = given_weights(lambda *all_given: all_given, len(tensors), frozen.weights)
    assert all(a is b for a, b in zip(eager(tensors[place]), tensors, strict=True))


def test_roots_of_a_batch_normalisation_are_computed_for_channels_alone() -> None:
    net, x = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)).eval(), torch.ones(1, 2, 4, 4)
    frozen, _ = frozen_region(net, x)
    roots = {
        name: [node.name for node in fuse(graph).nodes if "rsqrt" in str(node)]
        for name, graph in (
            ("plain", unpacked(frozen.graph.content)),
            ("frozen", unpacked(frozen.content)),
        )
    }
    assert roots == {"plain": ["batch_norm_factor"], "frozen": []}


def test_a_frozen_graph_belongs_to_the_values_of_its_weights() -> None:
    net, x = nn.Linear(3, 2), torch.ones(1, 3)
    frozen, _ = frozen_region(net, x)
    same = replace(frozen)
    assert same.digest == frozen.digest != frozen.graph.digest
    with torch.no_grad():
        net.weight[0, 0] += 1
    assert replace(frozen).digest != frozen.digest
    with pytest.raises(TuningFailed, match="its weights have changed since they were frozen"):
        _ = frozen.content
