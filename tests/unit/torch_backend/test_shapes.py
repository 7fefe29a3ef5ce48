"""Graphs with dynamic shapes: right for every shape, with regions for those that come again."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tuner.torch  # noqa: E402
from tests.support.torch_regions import compile_evaluated  # noqa: E402
from tuner.torch import shapes  # noqa: E402
from tuner.torch.compiling import compiled  # noqa: E402
from tuner.torch.notices import TunerWarning  # noqa: E402

nn = torch.nn

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:torch")


def assert_same(got: Any, right: Any) -> None:
    torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-5, check_stride=True)


def test_each_shape_that_comes_again_has_regions() -> None:
    """PyTorch makes the graph dynamic at the second shape."""

    def function(x: Any) -> Any:
        rows = x.shape[0]
        return (x @ x.T).softmax(1).reshape(-1), x[:, : rows - 1] * rows, rows * 2, x.T

    call, backend = compile_evaluated(function, calls=2)
    seen = []
    for rows in (3, 8, 8, 5, 5, 3, 8, 6):
        x = torch.randn(rows, 12)
        assert_same(call(x), function(x))
        seen.append(len(backend.regions))
    assert seen == [1, 1, 2, 2, 3, 3, 3, 3] and not backend.left


def test_gradients_are_right_for_each_shape() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.LayerNorm(5))
    own = copy.deepcopy(net)
    call, backend = compile_evaluated(net, calls=2)
    for rows in (2, 4, 4, 7, 7, 4):
        gradients = []
        x = torch.randn(rows, 6)
        for given, of in ((call, net), (own, own)):
            of.zero_grad()
            leaf = x.clone().requires_grad_()
            given(leaf).square().mean().backward()
            gradients.append([leaf.grad, *(p.grad.clone() for p in of.parameters())])
        assert_same(*gradients)
    assert len(backend.parts) == 6  # forward and backward, of three shapes


def test_a_marked_dimension_has_regions() -> None:
    call, backend = compile_evaluated(lambda x: (x.exp() @ x.T, x.shape[0]))
    x = torch.randn(5, 4)
    torch._dynamo.mark_dynamic(x, 0)
    got, rows = call(x)
    assert_same(got, x.exp() @ x.T)
    assert rows == 5 and len(backend.regions) == 1 and not backend.left
    assert_same(call(torch.ones(9, 4))[0], torch.full((9, 9), 4 * 2.7182817))


def test_strides_and_written_inputs_are_those_of_each_call() -> None:
    def function(x: Any, y: Any) -> Any:
        y.add_(x.shape[1])
        return x * 2 + y, x.transpose(0, 1)

    call, backend = compile_evaluated(function)
    for shape in ((2, 3), (4, 5), (5, 4)):
        for x in (torch.randn(shape), torch.randn(shape[::-1]).T):
            ours, theirs = torch.ones(shape), torch.ones(shape)
            assert_same(call(x, ours), function(x, theirs))
            assert_same(ours, theirs)
    assert backend.regions


def test_shapes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "MOST_SHAPES", 2)
    call, backend = compile_evaluated(lambda x: x * x.shape[0])
    for rows in (2, 3, 4, 5, 6, 3):
        assert_same(call(torch.ones(rows, 2)), torch.full((rows, 2), float(rows)))
    assert len(backend.regions) == 3  # and that of the first shape, which was static


def test_a_number_that_grows_compiles_nothing() -> None:
    call, backend = compile_evaluated(lambda x, step: x * step, calls=2)
    for step in range(3, 12):
        assert_same(call(torch.ones(3), step), torch.full((3,), float(step)))
    assert len(backend.regions) == 1  # of the first number


def test_values_of_floats_get_no_functions() -> None:
    call = torch.compile(lambda x, rate: x * rate, backend=tuner.torch.tuner, mode="tune-off")
    for rate in (0.5, 0.25, 0.125, 0.5):
        assert_same(call(torch.ones(3), rate), torch.full((3,), rate))


def test_a_shape_that_cannot_be_compiled_stays_with_pytorch() -> None:
    def refuse(region: Any, eager: Any) -> Any:
        raise ValueError("no function")

    torch._dynamo.reset()
    call = torch.compile(
        lambda x: x * 2,
        backend=lambda module, inputs: compiled(module, inputs, refuse, calls=1),
        dynamic=True,
    )
    with pytest.warns(TunerWarning, match="has no regions: no function; PyTorch computes it"):
        assert_same(call(torch.ones(3, 4)), torch.full((3, 4), 2.0))
    assert_same(call(torch.ones(3, 4)), torch.full((3, 4), 2.0))


def test_a_marked_input_is_explained_by_its_shape() -> None:
    x = torch.randn(5, 4)
    torch._dynamo.mark_dynamic(x, 0)
    explained = tuner.torch.explain(lambda x: (x @ x.T).relu(), x)
    assert explained.share == 1 and len(explained.regions) == 1
