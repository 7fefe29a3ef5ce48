"""Results that replace inputs: regions may write them themselves where nobody else reads
either, and PyTorch copies them otherwise."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.support.torch_regions import Traced, compile_evaluated  # noqa: E402


def compare(function: Callable[..., Any], *inputs: Any) -> Traced:
    """Results and inputs after a call, with those of PyTorch; inputs stay where they are."""
    compiled, backend = compile_evaluated(function)
    ours, theirs = copy.deepcopy(inputs), copy.deepcopy(inputs)
    places = [tensor.data_ptr() for tensor in ours]
    got, right = compiled(*ours), function(*theirs)
    torch.testing.assert_close((got, ours), (right, theirs), check_stride=True)
    assert [tensor.data_ptr() for tensor in ours] == places
    return backend


def replaced(backend: Traced) -> int:
    """The number of results that regions may write over inputs."""
    return sum(len(region.replaced) for region in backend.regions)


def momentum(x: Any, y: Any) -> Any:
    y.mul_(0.5).add_(x, alpha=2)
    x.sub_(y.sqrt())


def through_a_view(x: Any, y: Any) -> Any:
    x[1:].add_(y[1:])
    return x.sum()


def returned(x: Any, y: Any) -> Any:
    x.add_(y)
    return x, x[1:]


def old_value_returned(x: Any, y: Any) -> Any:
    old = x * 1.5
    view = y[1:]
    x.add_(y)
    return old, view


def old_value_read_later(x: Any, y: Any) -> Any:
    later = torch.special.i1(y.exp()) + x
    x.mul_(2)
    return later


def new_value_read_later(x: Any, y: Any) -> Any:
    x.mul_(2)
    return torch.special.i1(x).exp() + y


def swapped(x: Any, y: Any) -> Any:
    old = x.clone()
    x.copy_(y)
    y.copy_(old)


def same_value_twice(x: Any, y: Any) -> Any:
    new = x + y
    x.copy_(new)
    y.copy_(new)


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (momentum, 2),
        (old_value_returned, 1),
        (old_value_read_later, 0),
        (new_value_read_later, 0),
        (same_value_twice, None),
        (returned, None),
        (through_a_view, None),
        (swapped, None),
    ],
)
def test_inputs_are_replaced(function: Callable[..., Any], count: int | None) -> None:
    backend = compare(function, torch.rand(4, 6), torch.rand(4, 6))
    assert backend.regions or function is swapped
    assert count is None or replaced(backend) == count


@pytest.mark.parametrize(
    ("x", "count"),
    [
        (torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last), 1),
        (torch.rand(4, 10)[:, ::2], 0),
        (torch.rand(3, 4).double(), 1),
        (torch.arange(6), 1),
        (torch.tensor(3.0), 1),
    ],
)
def test_tensors_lie_as_those_that_they_replace(x: Any, count: int) -> None:
    def step(x: Any) -> None:
        x.add_(1).mul_(2)

    compiled, backend = compile_evaluated(step)
    right = (x + 1) * 2
    compiled(x)
    torch.testing.assert_close(x, right)
    assert replaced(backend) == count


def test_a_result_is_written_in_the_order_of_what_it_replaces() -> None:
    def step(x: Any, y: Any) -> None:
        x.copy_(y.T * 2)

    assert replaced(compare(step, torch.rand(4, 6), torch.rand(6, 4))) == 1


def test_running_statistics_are_replaced() -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.ReLU())
    ours = copy.deepcopy(net)
    compiled, backend = compile_evaluated(ours)
    for _ in range(2):
        x = torch.rand(4, 2, 6, 6)
        compiled(x).square().mean().backward()
        net(x).square().mean().backward()
    torch.testing.assert_close(dict(ours.named_buffers()), dict(net.named_buffers()))
    for (name, got), right in zip(ours.named_parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(got.grad, right.grad, rtol=1e-4, atol=1e-5, msg=name)
    assert replaced(backend) == 3
