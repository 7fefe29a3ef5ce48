"""Programs of PyTorch's pt2e quantisation: products of integers where the program has floats
between two roundings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.graph_values import graph_outputs
from tuner.models.errors import ModelRefused
from tuner.models.exported_program import read_exported
from tuner.models.graph import Graph

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")


def library(torch: Any) -> Any:
    """The operators, which importing a module of PyTorch's defines."""
    pytest.importorskip("torch.ao.quantization.fx._decomposed")
    return torch.ops.quantized_decomposed


def network(torch: Any) -> Any:
    """What a quantiser writes of a convolution, a depthwise one and a linear layer."""
    q, functional = library(torch), torch.nn.functional

    def rounded(x: Any, scale: float, zero: int, least: int = 0, most: int = 255) -> Any:
        bounds = (scale, zero, least, most, torch.uint8)
        return q.dequantize_per_tensor(q.quantize_per_tensor(x, *bounds), *bounds)

    class Net(torch.nn.Module):  # type: ignore[misc]  # torch may be missing
        def __init__(self) -> None:
            super().__init__()
            draw = torch.Generator().manual_seed(3)

            def held(name: str, *shape: int) -> None:
                integers = torch.randint(-127, 128, shape, dtype=torch.int8, generator=draw)
                self.register_buffer(name, integers)
                scales = torch.rand(shape[0], generator=draw) * 2e-3 + 1e-3
                self.register_buffer(f"{name}_scales", scales)
                self.register_buffer(f"{name}_bias", torch.randn(shape[0], generator=draw))

            held("conv", 8, 3, 3, 3)
            held("depthwise", 8, 1, 3, 3)
            held("linear", 5, 8)

        def weights(self, name: str) -> Any:
            integers, scales = getattr(self, name), getattr(self, f"{name}_scales")
            zeros = torch.zeros(len(scales), dtype=torch.int64)
            return q.dequantize_per_channel(integers, scales, zeros, 0, -127, 127, torch.int8)

        def forward(self, x: Any) -> Any:
            x = rounded(x, 0.03, 120)
            x = functional.conv2d(x, self.weights("conv"), self.conv_bias, stride=2, padding=1)
            x = rounded(x.relu(), 0.02, 0)
            x = functional.conv2d(
                x, self.weights("depthwise"), self.depthwise_bias, padding=1, groups=8
            )
            x = rounded(x.relu(), 0.02, 0, 0, 127).mean((2, 3))
            return functional.linear(rounded(x, 0.02, 0), self.weights("linear"), self.linear_bias)

    return Net().eval()


def integer_sums(graph: Graph) -> int:
    """Stages that sum in integers."""
    return sum(
        stage.reducer == "sum" and stage.accumulator == "int32"
        for entry in graph.expressions
        for stage in entry.stages
    )


def test_layers_between_roundings_are_sums_of_integers() -> None:
    torch = pytest.importorskip("torch")
    net = network(torch)
    x = torch.randn(2, 3, 12, 13, generator=torch.Generator().manual_seed(4))
    graph = read_exported(torch.export.export(net, (x,)))
    assert integer_sums(graph) >= 3
    (output,) = graph_outputs(graph, [x.numpy()])
    right = net(x).numpy()
    # A value beside a half may be rounded to either side, which is a step of one input.
    assert np.linalg.norm(output - right) <= 2e-3 * np.linalg.norm(right)


@pytest.mark.parametrize("zero", [0, 255])
def test_zero_points_at_both_ends(zero: int) -> None:
    torch = pytest.importorskip("torch")
    q = library(torch)

    class Rounds(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch may be missing
        def forward(self, x: Any) -> Any:
            return q.quantize_per_tensor(x, 0.5, zero, 3, 250, torch.uint8)

    x = torch.linspace(-200, 200, 801)
    graph = read_exported(torch.export.export(Rounds(), (x,)))
    (output,) = graph_outputs(graph, [x.numpy()])
    np.testing.assert_array_equal(output, Rounds()(x).numpy())


def test_integers_of_16_bits_are_refused() -> None:
    torch = pytest.importorskip("torch")
    q = library(torch)

    class Wide(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch may be missing
        def forward(self, x: Any) -> Any:
            return q.quantize_per_tensor(x, 0.5, 0, -32768, 32767, torch.int16)

    with pytest.raises(ModelRefused, match="integers of int16; int8, uint8 and int32 are taken"):
        read_exported(torch.export.export(Wide(), (torch.zeros(3),)))
