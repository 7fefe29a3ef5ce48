"""What a forward graph saves for its backward graph lies as its region computes it; what
PyTorch or the caller reads lies as traced."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.support.torch_libraries import by_library  # noqa: E402
from tests.support.torch_regions import Traced, compile_traced, evaluated  # noqa: E402
from tuner.torch import layouts, native  # noqa: E402
from tuner.torch.compiling import by_pytorch  # noqa: E402
from tuner.torch.layouts import layouts_of  # noqa: E402
from tuner.torch.partition import Region  # noqa: E402
from tuner.torch.rebuilding import Function, OfPyTorch  # noqa: E402

nn = torch.nn

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:torch")

BATCH, CHANNELS = 2, 3


class Flat(nn.Module):  # type: ignore[misc, name-defined]
    """A convolution of rows of numbers, whose gradient is seen as rows again."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(CHANNELS, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 5, 3, stride=2, padding=1)

    def forward(self, rows: Any) -> Any:
        inner = torch.sigmoid(self.first(rows.view(BATCH, CHANNELS, 6, 7)))
        return torch.tanh(self.second(inner)).sum((2, 3))


def trained(model: Any, function_of: Any, shape: tuple[int, ...]) -> tuple[Any, Traced]:
    """The gradients of a compiled model's parameters and input, compared with those of the
    model itself."""
    inputs = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    right, given = (inputs.clone().requires_grad_() for _ in range(2))
    expected = model(right)
    expected.square().sum().backward()
    twin = copy.deepcopy(model)
    twin.zero_grad()
    function, backend = compile_traced(twin, function_of)
    result = function(given)
    result.square().sum().backward()
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5, check_stride=True)
    for got, want in zip([given, *twin.parameters()], [right, *model.parameters()], strict=True):
        torch.testing.assert_close(got.grad, want.grad, rtol=1e-4, atol=1e-5)
    assert given.grad.stride() == right.grad.stride()
    return result, backend


def model_of(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return Flat()


def ways(forward: Any, backward: Any) -> Any:
    """Computes the first region by one way, all others by another."""
    count = iter(range(9))

    def function_of(region: Region, eager: OfPyTorch) -> Function:
        chosen: Function = (backward if next(count) else forward)(region, eager)
        return chosen

    return function_of


@pytest.mark.parametrize(
    ("forward", "backward"),
    [
        (evaluated, evaluated),
        (evaluated, by_pytorch),
        (by_pytorch, by_pytorch),
    ],
)
def test_gradients_are_those_of_pytorch_whoever_computes_them(forward: Any, backward: Any) -> None:
    _, backend = trained(model_of(), ways(forward, backward), (BATCH, CHANNELS * 6 * 7))
    assert len(backend.regions) == 2 and not backend.left


def test_saved_tensors_lie_with_their_channels_last_in_both_graphs() -> None:
    _, backend = trained(model_of(), evaluated, (BATCH, CHANNELS * 6 * 7))
    forward, backward = map(layouts_of, backend.regions)
    saved = {layout.strides for layout in forward.outputs if len(layout.shape) == 4}
    assert saved == {(4 * 6 * 7, 1, 4 * 7, 4), (5 * 3 * 4, 1, 5 * 4, 5)}
    assert saved <= {layout.strides for layout in backward.inputs}
    copied = {
        node.tensor(node.outputs[0]).shape
        for region in backend.regions
        for node in region.graph.expressions
        if node.name == "copy"
    }
    # The input and its gradient, which the caller has as rows.
    assert copied == {(BATCH, 6, 7, CHANNELS), (BATCH, CHANNELS, 6, 7)}


def test_a_saved_alias_lies_as_what_it_is_of() -> None:
    """AOTAutograd saves one of an activation that no convolution reads."""

    class Last(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(CHANNELS, 8, 3)

        def forward(self, images: Any) -> Any:
            return torch.relu(self.conv(images)).mean((2, 3))

    torch.manual_seed(0)
    for backward in (evaluated, by_pytorch):
        _, backend = trained(Last(), ways(evaluated, backward), (BATCH, CHANNELS, 5, 6))
        strides = {layout.strides for layout in layouts_of(backend.regions[0]).outputs}
        assert (8 * 3 * 4, 1, 8 * 4, 8) in strides
        assert (8 * 3 * 4, 3 * 4, 4, 1) not in strides


def test_what_the_caller_gets_lies_as_traced() -> None:
    """Though it is saved too."""

    class Shown(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(CHANNELS, 8, 3)

        def forward(self, images: Any) -> Any:
            return torch.sigmoid(self.conv(images))

    torch.manual_seed(0)
    result, _ = trained(Shown(), evaluated, (BATCH, CHANNELS, 5, 6))
    assert result.is_contiguous()


def test_a_view_of_a_saved_tensor_is_of_one_that_lies_as_traced() -> None:
    class Viewed(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(CHANNELS, 4, 3)
            self.head = nn.Linear(4 * 3 * 4, 2)

        def forward(self, images: Any) -> Any:
            return self.head(torch.relu(self.conv(images)).flatten(1))

    torch.manual_seed(0)
    for backward in (evaluated, by_pytorch):
        trained(Viewed(), ways(evaluated, backward), (BATCH, CHANNELS, 5, 6))


class Odd(torch.autograd.Function):  # type: ignore[misc, name-defined]
    """Squares, with a derivative that has no expression, and a view that its argument's strides
    must allow."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        rows = torch.special.bessel_j0(x).view(BATCH, -1) * gradient.reshape(BATCH, -1)
        return rows.view(x.shape)


def test_calls_of_pytorch_read_tensors_that_lie_as_traced() -> None:
    class Left(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(CHANNELS, 4, 3)

        def forward(self, images: Any) -> Any:
            return Odd.apply(self.conv(images)).mean((2, 3))

    torch.manual_seed(0)
    _, backend = trained(Left(), evaluated, (BATCH, CHANNELS, 5, 6))
    assert {call.operator for call in backend.left} == {"aten.special_bessel_j0.default"}
    assert any(cut.orders for cut in backend.parts)


@pytest.mark.slow
def test_libraries_of_both_graphs_take_saved_tensors_where_they_lie(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copies = []

    def copied(*arguments: Any) -> Any:
        copies.append(arguments)
        return layouts.copied(*arguments)

    monkeypatch.setattr(native, "copied", copied)
    trained(model_of(), by_library, (BATCH, CHANNELS * 6 * 7))
    assert copies == []
