"""Steps of PyTorch's optimisers: one region, with eager's losses and parameters."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from tests.support.torch_libraries import by_library  # noqa: E402
from tests.support.torch_regions import (  # noqa: E402
    Traced,
    compile_evaluated,
    compile_traced,
    evaluated,
)
from tuner.torch.foreach import rules  # noqa: E402
from tuner.torch.partition import Region  # noqa: E402
from tuner.torch.rebuilding import OfPyTorch  # noqa: E402


class Operators(TorchDispatchMode):  # type: ignore[misc]  # of a package without types
    """Notes the operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def _trained(model: Any, step: Any, steps: int = 4) -> list[float]:
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(steps):
        inputs = torch.rand(8, 6, generator=generator)
        loss = model(inputs).square().mean()
        model.zero_grad()
        loss.backward()
        step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("foreach", [True, False])
def test_adams_step_is_one_region_and_gives_eagers_losses(foreach: bool) -> None:
    torch.manual_seed(0)
    eager = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.GELU(), torch.nn.Linear(5, 2))
    ours = copy.deepcopy(eager)
    options: dict[str, Any] = {"lr": 1e-2, "weight_decay": 1e-2, "foreach": foreach}
    right = _trained(eager, torch.optim.Adam(eager.parameters(), **options).step)
    step, backend = compile_evaluated(torch.optim.Adam(ours.parameters(), **options).step)
    got = _trained(ours, step)
    assert all(len(cut.regions) == 1 and not cut.left for cut in backend.parts), backend.left
    assert all(len(region.replaced) == len(region.part.outputs) for region in backend.regions)
    assert got == pytest.approx(right, rel=1e-5)
    for a, b in zip(ours.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, partial(torch.optim.SGD, lr=0.1)])
def test_a_step_races_the_one_that_pytorch_runs_uncompiled(optimizer: Any) -> None:
    """It writes the same where it is given copies, in place."""
    rivals: list[tuple[Region, Any]] = []

    def raced(region: Region, eager: OfPyTorch) -> Any:
        rivals.append((region, eager.uncompiled))

        def function(*tensors: Any) -> Any:
            results, (region, rival) = eager(*tensors), rivals[-1]
            own = [tensor.detach().clone() for tensor in tensors]
            with Operators() as called, torch.no_grad():
                rival(*own)
            for output, number in region.replaced:
                torch.testing.assert_close(own[number], results[output])
            assert any(name.split(".")[1] in ("lerp_", "sub_", "add_") for name in called.names)
            return results

        return function

    parameters = [torch.nn.Parameter(torch.rand(shape)) for shape in ((2, 3), (4,))]
    step, _ = compile_traced(optimizer(parameters).step, raced)
    for _ in range(3):
        for parameter in parameters:
            parameter.grad = torch.rand_like(parameter)
        step()
    assert rivals and all(rival is not None for _, rival in rivals)


@pytest.mark.parametrize(
    "function", [lambda x, y: x.exp() + y, lambda x, y: torch.special.i1(x.mul_(2)) + y]
)
def test_what_replaces_nothing_or_is_a_part_of_a_graph_races_its_calls(function: Any) -> None:
    rivals = []

    def given(region: Region, eager: OfPyTorch) -> Any:
        rivals.append(eager.uncompiled)
        return evaluated(region, eager)

    x, y = torch.rand(4), torch.rand(4)
    right = function(x.clone(), y)
    compiled, _ = compile_traced(function, given)
    torch.testing.assert_close(compiled(x, y), right)
    assert rivals and all(rival is None for rival in rivals)


@pytest.mark.slow
def test_libraries_write_parameters_and_moments_where_they_are() -> None:
    """After ten steps of Adam they are those of float64."""
    torch.manual_seed(0)
    ours = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.GELU(), torch.nn.Linear(5, 2))
    exact = copy.deepcopy(ours).double()
    optimizers = [torch.optim.Adam(net.parameters(), lr=1e-2) for net in (ours, exact)]
    step, backend = compile_traced(optimizers[0].step, by_library)
    places = [parameter.data_ptr() for parameter in ours.parameters()]
    for _ in range(10):
        inputs = torch.rand(8, 6)
        for net, update in ((ours, step), (exact, optimizers[1].step)):
            net.zero_grad()
            net(inputs.to(next(net.parameters()).dtype)).square().mean().backward()
            update()
    assert all(len(region.replaced) == len(region.part.outputs) for region in backend.regions)
    assert [parameter.data_ptr() for parameter in ours.parameters()] == places
    for got, right in zip(ours.parameters(), exact.parameters(), strict=True):
        torch.testing.assert_close(got.double(), right, rtol=1e-4, atol=1e-6)
        for name in ("exp_avg", "exp_avg_sq", "step"):
            one, other = (o.state[p][name] for o, p in zip(optimizers, (got, right), strict=True))
            torch.testing.assert_close(one.double(), other.double(), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("overload", rules(), ids=str)
def test_lists_give_what_pytorch_gives(overload: Any) -> None:
    generator = torch.Generator().manual_seed(0)

    def tensors() -> list[Any]:
        return [torch.rand(shape, generator=generator) + 0.5 for shape in ((2, 3), (4,))]

    given: list[Any] = []
    for parameter in overload._schema.arguments:
        kinds: dict[str, Any] = {
            "List[Tensor]": tensors(),
            "List[number]": [0.5, 2.0],
            "Tensor": torch.tensor(1.5),
            "number": 1.25,
        }
        if not parameter.kwarg_only:
            given.append(kinds[str(parameter.type)])
    named = {p.name: 0.75 for p in overload._schema.arguments if p.kwarg_only}
    for options in ({}, named):
        for got, right in zip(
            rules()[overload](*given, **options), overload(*given, **options), strict=True
        ):
            torch.testing.assert_close(got, right)


def test_a_backend_sees_an_optimiser_that_changes_its_state_in_place() -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
    backend = Traced(evaluated, 1)
    step = torch.compile(optimizer.step, backend=backend)
    storage = parameter.data_ptr()
    parameter.grad = torch.ones(3)
    for _ in range(2):
        step()
    assert parameter.data_ptr() == storage
    torch.testing.assert_close(parameter.detach(), torch.full((3,), 1 - 0.1 - 0.19))
