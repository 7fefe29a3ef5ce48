"""Recurrent layers, which Dynamo traces where its user says so: whole in inference."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.support.torch_regions import compile_evaluated  # noqa: E402

nn = torch.nn

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*:DeprecationWarning:torch", "ignore:LSTM with projections:UserWarning"
)


def check(layer: Any, *inputs: Any) -> Any:
    """Compares a compiled layer with itself, its outputs' strides too; returns the backend."""
    compiled, backend = compile_evaluated(layer)
    with torch._dynamo.config.patch(allow_rnn=True):
        got = compiled(*inputs)
    torch.testing.assert_close(got, layer(*inputs), rtol=1e-4, atol=1e-5, check_stride=True)
    return backend


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("LSTM", {"batch_first": True, "bidirectional": True, "num_layers": 2, "dropout": 0.5}),
        ("LSTM", {"bias": False}),
        ("GRU", {"batch_first": True, "num_layers": 2}),
        ("RNN", {"bidirectional": True}),
    ],
)
def test_a_layer_is_one_call(kind: str, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    layer = getattr(nn, kind)(4, 3, **options).eval()
    with torch.no_grad():
        backend = check(layer, torch.randn(2, 5, 4))
    (region,) = backend.regions
    calls = [str(node.target) for node in region.part.nodes if "tuner" in str(node.target)]
    assert len(calls) == 1 and not backend.left


@pytest.mark.parametrize("layer", [nn.LSTM(4, 6, proj_size=3), nn.RNN(4, 3, nonlinearity="relu")])
def test_states_may_be_given(layer: Any) -> None:
    states = torch.randn(1, 2, 3)
    hidden = (states, torch.randn(1, 2, 6)) if isinstance(layer, nn.LSTM) else states
    with torch.no_grad():
        backend = check(layer.eval(), torch.randn(5, 2, 4), hidden)
    assert backend.regions and not backend.left


def test_a_layer_that_drops_out_draws_the_numbers_of_pytorch() -> None:
    layer = nn.GRU(4, 3, num_layers=2, dropout=0.5)
    compiled, _ = compile_evaluated(layer)
    x = torch.randn(5, 2, 4)
    results = []
    for called in (layer, compiled):
        torch.manual_seed(1)
        with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
            results.append(called(x)[0])
    torch.testing.assert_close(*results)


def test_gradients_are_those_of_pytorch() -> None:
    torch.manual_seed(0)
    layer, x = nn.LSTM(4, 3), torch.randn(3, 2, 4)
    compiled, backend = compile_evaluated(layer)
    gradients = []
    for called in (layer, compiled):
        layer.zero_grad()
        with torch._dynamo.config.patch(allow_rnn=True):
            called(x)[0].square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in layer.parameters()])
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)
    assert [left.operator for left in backend.left] == ["torch.lstm"]


@pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    reason="PyTorch itself has no bfloat16 LSTM on a CPU without AVX-512",
)
def test_autocast_is_that_of_pytorch() -> None:
    layer, x = nn.LSTM(4, 3).eval(), torch.randn(5, 2, 4)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        right = layer(x)[0]
        compiled, _ = compile_evaluated(layer)
        with torch._dynamo.config.patch(allow_rnn=True):
            got = compiled(x)[0]
        assert got.dtype == right.dtype
        torch.testing.assert_close(got, right, rtol=2e-2, atol=2e-2)


def test_packed_sequences_are_those_of_pytorch() -> None:
    layer, x = nn.LSTM(4, 3).eval(), torch.randn(5, 2, 4)
    packed = nn.utils.rnn.pack_padded_sequence(x, [5, 3])
    compiled, _ = compile_evaluated(layer)
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        torch.testing.assert_close(compiled(packed)[0].data, layer(packed)[0].data)


def test_without_the_setting_layers_are_left_to_pytorch() -> None:
    layer, x = nn.LSTM(4, 3).eval(), torch.randn(5, 2, 4)
    compiled, backend = compile_evaluated(lambda x: layer(x.exp())[0].relu())
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), layer(x.exp())[0].relu())
    assert all("tuner" not in str(n.target) for r in backend.regions for n in r.part.nodes)
