"""Kernels of PyTorch stay whole in graphs, so that PyTorch computes them by these; expressions
take them apart."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from tests.support.torch_regions import compile_evaluated, compile_traced, evaluated  # noqa: E402
from tuner.torch.apart import Apart  # noqa: E402
from tuner.torch.attention import MOST_SCORES  # noqa: E402
from tuner.torch.compiling import by_pytorch, compiled  # noqa: E402
from tuner.torch.decompositions import rules, rules_without_kernels  # noqa: E402
from tuner.torch.partition import partition  # noqa: E402
from tuner.torch.rebuilding import of_pytorch, rebuilt  # noqa: E402

nn = torch.nn

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:torch")


class Words(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch may be missing
    """An embedding, a normalisation, weights by a softmax, an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.product = nn.Embedding(7, 6), nn.LayerNorm(6), nn.Linear(6, 5)

    def forward(self, words: Any) -> Any:
        x = self.norm(self.table(words))
        return nn.functional.gelu(self.product(torch.softmax(x @ x.mT, -1) @ x))


def images() -> Any:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.GroupNorm(2, 4),
        nn.SiLU(),
        nn.Flatten(),
        nn.Linear(16, 3),
        nn.LogSoftmax(-1),
    )


NETWORKS: dict[str, tuple[Callable[[], Any], Any, set[str]]] = {
    "words": (
        Words,
        torch.arange(10).reshape(2, 5) % 7,
        {
            "aten.embedding_dense_backward.default",
            "aten.gelu_backward.default",
            "aten.native_layer_norm_backward.default",
            "aten._softmax_backward_data.default",
        },
    ),
    "images": (
        images,
        torch.rand(3, 2, 4, 4, generator=torch.Generator().manual_seed(0)),
        {
            "aten._native_batch_norm_legit_functional.default",
            "aten.convolution_backward.default",
            "aten.native_batch_norm_backward.default",
            "aten.native_group_norm_backward.default",
            "aten.threshold_backward.default",
            "aten.silu_backward.default",
            "aten._log_softmax_backward_data.default",
        },
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_regions_are_of_pytorchs_kernels_and_compute_what_these_do(name: str) -> None:
    make, x, kernels = NETWORKS[name]
    torch.manual_seed(0)
    ours = make()
    theirs = copy.deepcopy(ours)
    model, backend = compile_evaluated(ours)
    for _ in range(2):
        got, right = model(x), theirs(x)
        torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-5)
        weights = torch.linspace(-1, 1, got.numel()).reshape(got.shape)
        for result in (got, right):
            (result * weights).sum().backward()
    for (label, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5, msg=label)
    for a, b in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(a, b)
    found = {str(node.target) for region in backend.regions for node in region.part.nodes}
    assert kernels <= found
    assert [len(cut.regions) for cut in backend.parts] == [1, 1] and not backend.left


def test_inference_without_libraries_calls_pytorchs_attention() -> None:
    q, k, v = (torch.rand(2, 2, 5, 4) for _ in range(3))

    def attention(q: Any, k: Any, v: Any) -> Any:
        return nn.functional.scaled_dot_product_attention(q, k, v).relu()

    for function_of in (by_pytorch, evaluated):
        model, backend = compile_traced(attention, function_of)
        torch.testing.assert_close(model(q, k, v), attention(q, k, v), rtol=1e-5, atol=1e-6)
        (region,) = backend.regions
        assert "flash_attention" in str(region.part.nodes[0].target)


MASKED = torch.arange(30).reshape(1, 1, 5, 6) % 4 > 0


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"scale": 0.3},
        {"attn_mask": MASKED},
        {"attn_mask": MASKED & (torch.arange(5)[:, None] != 2)},  # nothing is left of a row
        {"attn_mask": torch.linspace(-2, 2, 30).reshape(5, 6)},
    ],
    ids=["plain", "causal", "scaled", "masked", "row", "biased"],
)
def test_attention_is_trained_in_regions(options: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(0)
    ours = [torch.rand(2, 3, n, 4, generator=generator).requires_grad_() for n in (5, 6, 6)]
    theirs = [x.detach().clone().requires_grad_() for x in ours]
    attention = nn.functional.scaled_dot_product_attention
    model, backend = compile_evaluated(lambda *given: attention(*given, **options).tanh())
    weights = torch.linspace(-1, 2, 120).reshape(2, 3, 5, 4)
    (model(*ours) * weights).sum().backward()
    (attention(*theirs, **options).tanh() * weights).sum().backward()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-6)
    assert [len(cut.regions) for cut in backend.parts] == [1, 1] and not backend.left


def test_attention_of_very_many_scores_is_trained_by_pytorch() -> None:
    """Whose kernels keep no matrix of them."""
    q, k = (torch.rand(1, 1, n, 1, requires_grad=True) for n in (4, MOST_SCORES // 4 + 1))
    model, backend = compile_evaluated(nn.functional.scaled_dot_product_attention)
    model(q, k, k).sum().backward()
    assert not backend.regions
    assert all("flash_attention" in left.operator for left in backend.left)


def test_equal_calls_on_a_constant_and_on_a_tensor_are_told_apart() -> None:
    """What the first call knows of its arguments is nothing that the second one knows."""

    def function(x: Any) -> Any:
        ones = torch.ones(3)
        first, second = torch.logaddexp(ones, x), torch.logaddexp(x, ones)
        return first - 2 * second + torch.logaddexp(x, x)

    x = torch.tensor([-1.0, 0.5, 4.0])
    module = make_fx(function, tracing_mode="fake")(x)
    cut = partition(module.graph, Apart(rules()))
    (region,) = cut.regions
    assert not cut.left
    functions = [evaluated(region, of_pytorch(module, region.part))]
    torch.testing.assert_close(rebuilt(module, cut, functions)(x), function(x))


def test_rules_are_put_together_once_unless_somebody_adds_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rule(x: Any, *given: Any) -> Any:
        return x * 0.5

    celu = torch.ops.aten.celu.default
    assert rules() is rules() and rules_without_kernels() is rules_without_kernels()
    assert rules()[celu] is not rule
    monkeypatch.setitem(torch._decomp.decomposition_table, celu, rule)
    assert rules()[celu] is rule
    monkeypatch.undo()
    assert rules()[celu] is not rule


def test_a_graph_without_regions_is_computed_as_without_compilation() -> None:
    module = torch.fx.symbolic_trace(lambda x: (torch.special.i1(x),))
    function = compiled(module, [torch.rand(3)], by_pytorch)
    assert function == module.forward


class Counted:
    """A region's function of which a test says whether it is PyTorch's."""

    def __init__(self, eager: Callable[..., Any]) -> None:
        self.__name__, self.eager, self.calls, self.is_pytorch = "counted", eager, 0, False

    def __call__(self, *tensors: Any) -> Any:
        self.calls += 1
        return self.eager(*tensors)


def test_a_graph_whose_regions_are_all_pytorchs_is_not_cut() -> None:
    """Forward and backward; a step of an optimiser writes where it is then."""
    counted: list[Counted] = []

    def function_of(_: Any, eager: Any) -> Counted:
        counted.append(Counted(eager))
        return counted[-1]

    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.GELU())
    theirs = copy.deepcopy(ours)
    model, _ = compile_traced(ours, function_of)
    calls = []
    for chosen in ((False, False), (True, True), (True, False), (True, True)):
        for region, is_pytorch in zip(counted, chosen, strict=False):
            region.is_pytorch = is_pytorch
        x = torch.rand(5, 4)
        for network, called in ((ours, model), (theirs, theirs)):
            network.zero_grad()
            called(x).square().sum().backward()
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad)
        torch.testing.assert_close(dict(ours.named_buffers()), dict(theirs.named_buffers()))
        calls.append([region.calls for region in counted])
    assert calls == [[1, 1], [1, 1], [2, 2], [2, 2]]
