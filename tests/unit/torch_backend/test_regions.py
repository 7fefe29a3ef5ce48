"""Graphs of `torch.compile` cut into regions: what the regions compute is what PyTorch does,
and what they cannot compute stays with PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from tests.support.depth import thinned  # noqa: E402
from tests.support.torch_regions import compile_evaluated, compile_traced, evaluated  # noqa: E402
from tuner.runtime.wrapper import MAX_ARGUMENTS  # noqa: E402
from tuner.torch.compiling import by_pytorch  # noqa: E402
from tuner.torch.partition import Partition, partition  # noqa: E402

nn = torch.nn

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:torch")


def conv_net() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, stride=2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 6),
        nn.GELU(),
        nn.LayerNorm(6),
    )


def assert_same(got: Any, right: Any) -> None:
    """Values within 1e-4, and the same dtypes, shapes and strides."""
    torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-5, check_stride=True)


def check(function: Callable[..., Any], *inputs: Any) -> Any:
    """Compares a compiled function with itself; returns the backend."""
    compiled, backend = compile_evaluated(function)
    torch.manual_seed(1)
    got = compiled(*copy.deepcopy(inputs))
    torch.manual_seed(1)
    assert_same(got, function(*copy.deepcopy(inputs)))
    return backend


def test_a_network_is_one_region() -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        backend = check(conv_net().eval(), torch.randn(2, 3, 8, 8))
    assert len(backend.regions) == 1 and backend.left == []


def test_norms_of_every_order_are_in_regions() -> None:
    norm, inf = torch.linalg.vector_norm, float("inf")

    def function(x: Any) -> Any:
        return [norm(x, order, dim=1) for order in (0, 0.5, 1, 2, 3, -1, inf, -inf)], norm(x[0, 0])

    assert not check(function, torch.randn(3, 5)).left


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", thinned(["gelu", "relu"], 1, pytest.mark.slow))
def test_a_fused_encoder_layer_is_one_region(norm_first: bool, activation: str) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        8, 2, 12, activation=activation, batch_first=True, norm_first=norm_first
    )
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
        backend = check(layer.eval(), torch.randn(2, 5, 8))
        assert len(backend.regions) == 1 and backend.left == []
        check(layer, torch.randn(2, 5, 8), None, torch.arange(5).expand(2, 5) > 3)


@pytest.mark.parametrize(("weights", "average"), [(False, True), (True, True), (True, False)])
def test_fused_attention_is_one_region(weights: bool, average: bool) -> None:
    """As PyTorch has it in inference, and with the weights that it gives."""
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, batch_first=True).eval()

    def function(x: Any, mask: Any = None) -> Any:
        options = {"need_weights": weights, "average_attn_weights": average}
        return layer(x, x, x, key_padding_mask=mask, **options)

    with torch.no_grad():
        backend = check(function, torch.randn(2, 5, 8))
        assert len(backend.regions) == 1 and backend.left == []
        check(function, torch.randn(2, 5, 8), torch.arange(5).expand(2, 5) > 3)


def test_gradients_are_right() -> None:
    torch.manual_seed(0)
    net, x = conv_net(), torch.randn(4, 3, 8, 8, requires_grad=True)
    own, y = copy.deepcopy(net), x.detach().clone().requires_grad_()
    compiled, backend = compile_evaluated(net)
    compiled(x).square().mean().backward()
    own(y).square().mean().backward()
    assert_same(x.grad, y.grad)
    for (name, ours), theirs in zip(net.named_parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5, msg=name)
    for ours, theirs in zip(net.buffers(), own.buffers(), strict=True):
        assert_same(ours, theirs)  # running statistics
    assert len(backend.parts) == 2 and all(cut.regions for cut in backend.parts)


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, nn.LayerNorm, partial(nn.GroupNorm, 2)])
@pytest.mark.parametrize("number", [1, 2])
def test_gradients_under_autocast_are_right_whoever_computes_a_graph(
    norm: Callable[[int], Any], number: int
) -> None:
    """PyTorch's normalisations save other dtypes than their traces say. The forward graph's
    regions are evaluated, or those of the backward graph."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 6), norm(6), nn.Tanh(), nn.Linear(6, 2))
    own, x = copy.deepcopy(net), torch.randn(4, 5)

    def computed(region: Any, eager: Any) -> Any:
        return (evaluated if len(backend.parts) == number else by_pytorch)(region, eager)

    def gradients(call: Callable[..., Any], of: Any) -> list[Any]:
        with torch.autocast("cpu", torch.bfloat16):
            y = call(x)
        y.float().square().mean().backward()
        return [parameter.grad for parameter in of.parameters()]

    compiled, backend = compile_traced(net, computed)
    got, right = gradients(compiled, net), gradients(own, own)
    torch.testing.assert_close(got, right, rtol=5e-2, atol=5e-3)
    assert len(backend.parts) == 2 and all(cut.regions for cut in backend.parts)


def test_what_has_no_expression_stays_and_parts_regions() -> None:
    backend = check(lambda x: torch.special.i1(x.tanh() @ x).exp().sum(0), torch.randn(4, 4))
    assert len(backend.regions) == 2
    assert [left.operator for left in backend.left] == ["aten.special_i1.default"]
    assert "no expression" in backend.left[0].reason


def test_regions_are_as_few_as_can_be() -> None:
    """Our calls behind the same foreign ones lie together, wherever the trace has them."""

    def function(x: Any) -> Any:
        early = torch.special.i1(x)
        late = torch.special.i1((x * 2).exp())
        return early.exp() + 1, late + 1, x.tanh() * 2, x.sigmoid() @ early

    backend = check(function, torch.randn(3, 3))
    assert [len(region.part.outputs) for region in backend.regions] == [4, 1]


def test_random_numbers_are_those_of_the_model_itself() -> None:
    def function(x: Any) -> Any:
        early = nn.functional.dropout(x, 0.5)
        late = nn.functional.dropout(x.exp() @ x, 0.3) + torch.rand(3, 3)
        return early, late, torch.rand_like(x) * x

    backend = check(function, torch.randn(3, 3))
    assert backend.left and all("random" in left.reason for left in backend.left)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.relu().T, x.exp()),
        lambda x: x.T,
        lambda x: (x.relu()[1:, ::2], x.relu()[0]),
        lambda x: (x[1:], x * 2),
        lambda x: x.relu().expand(3, 4, 6),
        lambda x: torch.as_strided(x * 2, (3, 3), (1, 2), 1),
        lambda x: (x, x.detach(), x.unsqueeze(1)),
        lambda x: (x.exp().unfold(1, 3, 2).sum(2), x.unfold(0, 2, 1), x.exp().unfold(0, 2, 2)),
        lambda x: torch.split((x + 1).T, [2, 4]),
    ],
)  # fmt: skip
def test_views_are_those_of_pytorch(function: Callable[..., Any]) -> None:
    check(function, torch.randn(4, 6))
    check(function, torch.randn(6, 4).T)


def test_results_that_alias_inputs_do_so() -> None:
    x = torch.randn(4, 6)
    compiled, _ = compile_evaluated(lambda x: (x[1:], x.exp()))
    view, _ = compiled(x)
    assert view.data_ptr() == x[1:].data_ptr()


def test_inputs_may_be_written() -> None:
    def function(x: Any, y: Any) -> Any:
        z = x * 2
        x.add_(1)
        y[0] = x.sum()
        return z + x

    compiled, _ = compile_evaluated(function)
    ours, theirs = ([torch.ones(3, 4), torch.zeros(5)] for _ in range(2))
    assert_same(compiled(*ours), function(*theirs))
    assert_same(ours, theirs)


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(2, 4, 5, 5).to(memory_format=torch.channels_last),
        torch.randn(2, 4, 5, 5).permute(3, 0, 2, 1),
        torch.randn(2, 4, 5, 10)[..., ::2],
        torch.randn(1, 4, 5, 1).expand(2, 4, 5, 5),
    ],
)
def test_strides_are_kept(x: Any) -> None:
    backend = check(lambda x: (x * 2, x.tanh().sum(1), x.transpose(1, 2) + 1), x)
    assert backend.regions and not backend.left


def test_tensors_without_elements_stay_with_pytorch() -> None:
    backend = check(lambda x: x * 2 + x, torch.randn(0, 3))
    assert not backend.regions and all("0 elements" in left.reason for left in backend.left)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
def test_sparse_tensors_stay_with_pytorch() -> None:
    """They have no strides to be asked for."""
    sparse = torch.eye(3).to_sparse_csr()
    cut = traced(lambda a, x: torch.mm(a, x).relu(), sparse, torch.randn(3, 2))
    assert [left.operator for left in cut.left] == ["aten.mm.default"]
    assert "is no plain tensor" in cut.left[0].reason and len(cut.regions) == 1


def traced(function: Callable[..., Any], *inputs: Any) -> Partition:
    return partition(make_fx(function, tracing_mode="fake")(*inputs).graph)


def test_a_region_of_too_many_tensors_is_several() -> None:
    tensors = [torch.ones(2) for _ in range(MAX_ARGUMENTS // 2 + 10)]
    cut = traced(lambda tensors: [tensor * 2 for tensor in tensors], tensors)
    assert len(cut.regions) == 2 and not cut.left


def test_a_call_of_too_many_tensors_stays_with_pytorch() -> None:
    tensors = [torch.ones(2) for _ in range(MAX_ARGUMENTS + 1)]
    cut = traced(lambda tensors: torch.cat(tensors) * 2, tensors)
    assert len(cut.regions) == 1
    assert [left.operator for left in cut.left] == ["aten.cat.default"]
    assert f"the limit is {MAX_ARGUMENTS}" in cut.left[0].reason


def test_bfloat16_is_stored_as_bfloat16() -> None:
    compiled, backend = compile_evaluated(lambda x: (x @ x + 1).relu())
    x = torch.randn(4, 4).bfloat16()
    torch.testing.assert_close(compiled(x), (x @ x + 1).relu(), rtol=2e-2, atol=2e-2)
    assert backend.regions
