"""What a backend must not get wrong: it is right, or left to PyTorch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from tests.support.torch_regions import (  # noqa: E402
    compile_evaluated,
    compile_traced,
    evaluate_traced,
)
from tuner.torch.compiling import by_pytorch  # noqa: E402
from tuner.torch.layouts import layouts_of  # noqa: E402
from tuner.torch.partition import partition  # noqa: E402

nn = torch.nn
INF, NAN = float("inf"), float("nan")

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:torch")


def check(function: Callable[..., Any], *inputs: Any) -> Any:
    """Compares a compiled function with itself, and what both leave of their inputs;
    returns the backend."""
    compiled, backend = compile_evaluated(function)
    ours, theirs = ([x.clone() for x in inputs] for _ in range(2))
    got, right = compiled(*ours), function(*theirs)
    close = {"rtol": 1e-4, "atol": 1e-5, "equal_nan": True}
    torch.testing.assert_close(got, right, **close)
    torch.testing.assert_close(ours, theirs, **close)
    return backend


def test_tensors_of_a_gpu_are_regions_of_their_own() -> None:
    def function(x: Any, y: Any, scale: Any) -> Any:
        return (x @ x).relu(), (y @ y).relu(), x * scale

    with FakeTensorMode():
        x, y = torch.empty(3, 3, device="cuda"), torch.empty(3, 3)
        cut = partition(make_fx(function)(x, y, torch.empty(())).graph)
    places = [layouts_of(region).is_on_gpu for region in cut.regions]
    assert sorted(places) == [False, True]
    assert ["takes tensors of two devices" in left.reason for left in cut.left] == [True]


def test_tensors_of_another_gpu_are_left() -> None:
    with FakeTensorMode():
        x = torch.empty(3, 3, device="cuda:1")
        cut = partition(make_fx(lambda x: (x @ x).relu())(x).graph)
    assert not cut.regions and len(cut.left) == 2
    assert all(
        "lies on cuda:1; regions take tensors of the CPU" in left.reason for left in cut.left
    )


def test_tensors_without_elements_are_left() -> None:
    def function(x: Any, y: Any) -> Any:
        return torch.cat([x, y]) * 2, x.sum(0), x @ y.T, y.exp(), torch.relu(x).mean(1)

    backend = check(function, torch.ones(0, 4), torch.ones(3, 4))
    assert backend.regions and backend.left
    assert all("0 elements" in left.reason for left in backend.left)


def test_inputs_are_written_through_views() -> None:
    def function(x: Any, y: Any) -> Any:
        x[1:].add_(y.sum())
        x.T[0] = y
        y.copy_(x[:, 0].exp())
        return x * 2, y + 1

    check(function, torch.ones(3, 4), torch.ones(3))


def test_an_input_and_its_view_are_written() -> None:
    def function(x: Any, y: Any) -> Any:
        y.mul_(2)
        return x + y

    compiled, _ = compile_evaluated(function)
    ours, theirs = torch.arange(6.0), torch.arange(6.0)
    got, right = compiled(ours[:4], ours[2:]), function(theirs[:4], theirs[2:])
    torch.testing.assert_close((got, ours), (right, theirs))


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_views_are_read_as_they_lie(data: st.DataObject) -> None:
    """Permuted, sliced, repeated and overlapping views of one tensor."""
    shape = data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=3))
    x = torch.arange(512.0).sin()[data.draw(st.integers(0, 3)) :]
    strides = [data.draw(st.integers(0, 7)) for _ in shape]
    view = x.as_strided(shape, strides).permute(data.draw(st.permutations(range(len(shape)))))
    got = evaluate_traced(lambda v: (v.exp() + 1).sum(0), view)
    torch.testing.assert_close(got, (view.exp() + 1).sum(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.relu(), x.abs(), x.sign(), x * 0, x - x, x == x, x > 0, x != x),
        lambda x: (x.amax(1), x.amin(1), x.sum(1), x.argmax(1), x.max(0), x.min(0)),
        lambda x: (x.softmax(1), x.log_softmax(1), x.logsumexp(1), x.cumsum(1)),
        lambda x: (x.clamp(-1, 1), x.maximum(x.T), x.minimum(x.T), x.where(x > 0, 0)),
        lambda x: (x.exp(), x.log(), x.sqrt(), x.tanh(), x.sigmoid(), x.erf(), x.atan(), x.rsqrt()),
        lambda x: (x @ x, nn.functional.layer_norm(x, (6,)), x.mean(0), x.var(1)),
        lambda x: (x.isnan(), x.isinf(), x.nan_to_num(), x.pow(2), x.round(), x.fmod(2)),
        # PyTorch's own GELU is no number at infinity, by the error function of its vectors.
        lambda x: (nn.functional.silu(x), nn.functional.elu(x), nn.functional.hardswish(x)),
        lambda x: (x.sort(1)[0], x.topk(2, 1)[0], x.flip(0), x[:, ::2], x.any(1), x.all(1)),
        lambda x: nn.functional.max_pool2d(x[None, None], 2),
    ],
)
def test_special_values_stay_what_they_are(function: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 6)
    x[0] = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1e30])
    x[2, 2], x[3, 1], x[4, 5] = NAN, INF, -INF
    check(function, x)


def test_autocast_regions_have_the_dtypes_of_pytorch() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3)).eval()

    def inside(x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            y = net(x)
        return y, y.float().softmax(1), x @ x.T

    x = torch.randn(4, 6)
    with torch.no_grad():
        compiled, backend = compile_evaluated(inside)
        torch.testing.assert_close(compiled(x), inside(x), rtol=2e-2, atol=2e-2)
        assert backend.regions and not backend.left
        compiled, _ = compile_evaluated(net)
        with torch.autocast("cpu", torch.bfloat16):
            right, got = net(x), compiled(x)
        assert right.dtype == torch.bfloat16
        torch.testing.assert_close(got, right, rtol=2e-2, atol=2e-2)
        torch.testing.assert_close(compiled(x), net(x))  # outside of it


def test_places_to_fill_count_from_the_end() -> None:
    def function(x: Any, places: Any) -> Any:
        return x.index_fill(1, places, 3.0) * 2

    compiled, _ = compile_traced(function, by_pytorch)
    x, places = torch.randn(2, 5), torch.tensor([0, -1])
    torch.testing.assert_close(compiled(x, places), function(x, places))
    check(function, x, places)


def test_several_threads_call_a_model() -> None:
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).eval()
    compiled, backend = compile_evaluated(net)
    barrier, rights, errors = threading.Barrier(4), list[bool](), list[Exception]()

    def work(seed: int) -> None:
        barrier.wait()
        try:
            for number in range(8):
                x = torch.full((2, 6), seed + number / 8)
                with torch.no_grad():
                    rights.append(torch.allclose(compiled(x), net(x), rtol=1e-4, atol=1e-5))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and len(rights) == 32 and all(rights) and backend.regions
