"""Traces that are kept: the next process makes none, and whatever a trace depends on has one of
its own."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.support.depth import thinned  # noqa: E402
from tests.support.model_programs import run_program  # noqa: E402
from tuner.models.graph_archive import unpacked  # noqa: E402
from tuner.models.reference.evaluation import evaluate_graph  # noqa: E402
from tuner.torch.compiling import compiled  # noqa: E402
from tuner.torch.kept_trace import TraceStore  # noqa: E402
from tuner.torch.layouts import Layout, Layouts, layouts_of  # noqa: E402
from tuner.torch.packed_graph import PackedGraph  # noqa: E402
from tuner.torch.partition import Region  # noqa: E402
from tuner.torch.rebuilding import Function, OfPyTorch  # noqa: E402

nn = torch.nn

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:torch")


def region_of(packed: PackedGraph, layouts: Layouts, eager: OfPyTorch) -> Function:
    """A region as PyTorch computes it, where its graph of expressions gives the same."""

    ends = (*layouts.inputs, *layouts.outputs)
    graph = unpacked(packed.content)
    plain = all(each.dtype == torch.float32 and _is_in_order(each) for each in ends)

    def function(*tensors: Any) -> Any:
        results = eager(*tensors)
        if plain:
            values = evaluate_graph(graph, [tensor.detach().numpy() for tensor in tensors])
            for name, result in zip(graph.outputs, results, strict=True):
                np.testing.assert_allclose(values[name], result, rtol=1e-3, atol=1e-4)
        return results

    function.__name__ = "checked_region"
    return function


def _is_in_order(layout: Layout) -> bool:
    return bool(layout.strides == torch.empty(layout.shape, device="meta").stride())


def checked(region: Region, eager: OfPyTorch) -> Function:
    return region_of(region.packed, layouts_of(region), eager)


class Process:
    """A backend as a new process has it; `traces` counts the graphs that it has traced."""

    def __init__(self, folder: Path) -> None:
        self.traces = 0
        self.store = TraceStore(folder=folder, region_of=region_of)

    def __call__(self, module: Any, inputs: Sequence[Any]) -> Function:
        return compiled(
            module,
            inputs,
            checked,
            self._note,
            traces=self.store,
        )

    def _note(self, traced: Any, cut: Any) -> None:
        self.traces += 1


def traces(folder: Path, function: Callable[..., Any], *inputs: Any) -> int:
    """How many graphs a new process traces, whose results and inputs are as without it."""
    torch._dynamo.reset()
    process = Process(folder)
    call = torch.compile(function, backend=process)
    for _ in range(2):
        ours, own = copy.deepcopy(inputs), copy.deepcopy(inputs)
        torch.manual_seed(1)
        got = call(*ours)
        torch.manual_seed(1)
        right = function(*own)
        torch.testing.assert_close((got, ours), (right, own), check_stride=True)
        assert shared(got, ours) == shared(right, own)
    return process.traces


def shared(results: Any, inputs: Any) -> list[list[bool]]:
    """Which results share memory with which inputs, and with each other."""
    leaves = torch.utils._pytree.tree_leaves((results, inputs))
    storages = [leaf.untyped_storage()._cdata for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return [[storage == other for other in storages] for storage in storages]


def conv_net() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4)
    )


def in_place(x: Any, y: Any) -> Any:
    x.mul_(2)
    y[0].add_(x.sum())
    return x * y, y[1]


def views(x: Any, y: Any) -> Any:
    z = x + y
    return x, x.T, z, z[0], z.unsqueeze(1), y.sort().values


def with_constants(x: Any, y: Any) -> Any:
    table = torch.tensor([1.5, -2.0, 0.25])
    return x[:, :3] * table + torch.arange(3), y.to(torch.float64, copy=True) / 3


def attended(x: Any, y: Any) -> Any:
    q, k = x.reshape(1, 1, 4, 5), y.reshape(1, 1, 4, 5)
    return nn.functional.scaled_dot_product_attention(q, k, q, is_causal=True)


def drawn(x: Any, y: Any) -> Any:
    return torch.rand_like(x) + x, nn.functional.dropout(y.exp(), 0.5)


def without_regions(x: Any, y: Any) -> Any:
    return x.view(-1), y.T


@pytest.mark.parametrize(
    "function",
    thinned(
        [in_place, views, drawn, with_constants, attended, without_regions], 3, pytest.mark.slow
    ),
)
def test_the_next_process_traces_nothing(tmp_path: Path, function: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(4, 5), torch.randn(4, 5)
    assert [traces(tmp_path, function, *inputs) for _ in range(2)] == [1, 0]


@pytest.mark.parametrize("training", [False, True])
def test_a_networks_trace_is_kept_with_its_statistics(tmp_path: Path, training: bool) -> None:
    """In training a batch normalisation replaces its running statistics."""
    torch.manual_seed(0)
    net = conv_net().train(training)
    x = torch.randn(2, 3, 8, 8)

    with torch.no_grad():
        for expected in (1, 0):
            torch._dynamo.reset()
            process = Process(tmp_path)
            ours, own = copy.deepcopy(net), copy.deepcopy(net)
            call = torch.compile(ours, backend=process)
            for _ in range(2):
                torch.testing.assert_close(call(x), own(x), rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(dict(ours.named_buffers()), dict(own.named_buffers()))
            assert process.traces == expected


@contextlib.contextmanager
def default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


STATES: dict[str, Callable[[], Any]] = {
    "gradients": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.float16),
    "default dtype": default_dtype,
    "deterministic": deterministic,
    "attention": lambda: nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH),
}


@pytest.mark.parametrize("state", thinned(STATES, 2, pytest.mark.slow))
def test_each_state_of_a_process_has_its_own_trace(tmp_path: Path, state: str) -> None:
    def function(x: Any) -> Any:
        return x @ x.T + torch.ones(4)

    x = torch.randn(4, 4)
    assert traces(tmp_path, function, x) == 1
    with STATES[state]():
        assert [traces(tmp_path, function, x) for _ in range(2)] == [1, 0]
    assert traces(tmp_path, function, x) == 0


@pytest.mark.parametrize("count", [3, pytest.param(5, marks=pytest.mark.slow)])
def test_each_kind_of_input_has_its_own_trace(tmp_path: Path, count: int) -> None:
    def function(x: Any) -> Any:
        return x + x.reshape(-1)[0]

    x = torch.arange(24.0).reshape(4, 6)
    kinds = [x, x.reshape(6, 4).T, nn.Parameter(x), x.double(), x[:, :5]][:count]
    with torch.no_grad():
        assert [traces(tmp_path, function, kind) for kind in kinds] == [1] * len(kinds)
        assert [traces(tmp_path, function, kind) for kind in kinds] == [0] * len(kinds)


def test_each_code_has_its_own_trace(tmp_path: Path) -> None:
    codes: list[Callable[..., Any]] = [
        lambda x: x * 2,
        lambda x: torch.softmax(x, 0),
        lambda x: torch.softmax(x, 1),
    ]
    x = torch.randn(3, 3)
    assert [traces(tmp_path, code, x) for code in codes] == [1] * len(codes)
    assert [traces(tmp_path, code, x) for code in codes] == [0] * len(codes)


def test_inputs_that_share_memory_are_traced_anew(tmp_path: Path) -> None:
    def function(x: Any, y: Any) -> Any:
        x.add_(1)
        return x * y

    x = torch.randn(4, 4)
    assert traces(tmp_path, function, x, torch.randn(4, 4)) == 1
    # A deep copy of both keeps what they share.
    assert [traces(tmp_path, function, x, x.T) for _ in range(2)] == [1, 1]


def test_a_users_operator_is_traced_anew(tmp_path: Path) -> None:
    """What it is made of may change, and its name stays."""
    for factor in (2, 3):
        library = torch.library.Library("kept_traces_test", "FRAGMENT")
        try:
            library.define("scaled(Tensor x) -> Tensor")
            library.impl("scaled", partial(torch.mul, other=factor), "CompositeImplicitAutograd")
            scaled = torch.ops.kept_traces_test.scaled.default
            assert traces(tmp_path, lambda x, scaled=scaled: scaled(x) + 1, torch.randn(3)) == 1
        finally:
            library._destroy()


@pytest.mark.parametrize("of_pytorch", [False, True])
def test_a_users_rule_of_an_operator_is_traced_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_pytorch: bool
) -> None:
    """One in the table of rules, or in the place of the rule that an operator comes with."""

    def rule(x: Any, *given: Any) -> Any:
        return x * 0.5

    x, aten = torch.randn(5), torch.ops.aten
    assert [traces(tmp_path, function, x) for _ in range(2)] == [1, 0]
    if of_pytorch:
        composite = torch._C.DispatchKey.CompositeImplicitAutograd
        monkeypatch.setitem(aten.type_as.default.py_kernels, composite, rule)
    else:
        monkeypatch.setitem(torch._decomp.decomposition_table, aten.celu.default, rule)
    assert traces(tmp_path, function, x) == 1
    monkeypatch.undo()
    assert traces(tmp_path, function, x) == 0


def test_training_is_traced_anew(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Linear(5, 3)
    for _ in range(2):
        torch._dynamo.reset()
        process = Process(tmp_path)
        x = torch.randn(2, 5)
        torch.compile(net, backend=process)(x).square().mean().backward()
        assert process.traces == 2  # forward and backward
    assert not list(tmp_path.iterdir())


def function(x: Any) -> Any:
    return x.exp() * 2


@pytest.mark.parametrize(
    "damage", thinned(["flipped", "of another version", "cut", "empty"], 2, pytest.mark.slow)
)
def test_a_damaged_file_is_traced_anew_and_replaced(tmp_path: Path, damage: str) -> None:
    x = torch.randn(5)
    assert traces(tmp_path, function, x) == 1
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    path.write_bytes(
        {
            "flipped": bytes(flipped),
            "cut": content[:-9],
            "empty": b"",
            "of another version": b"\x80\x04N." * 20,
        }[damage]
    )
    assert traces(tmp_path, function, x) == 1
    assert traces(tmp_path, function, x) == 0


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.write_text("no folder")
    assert [traces(folder, function, torch.randn(5)) for _ in range(2)] == [1, 1]


@pytest.mark.filterwarnings("ignore:dynamo_pgo force disabled")
def test_pytorchs_switches_hold(tmp_path: Path) -> None:
    x = torch.randn(5)
    with torch.compiler.config.patch(force_disable_caches=True):
        assert traces(tmp_path, function, x) == 1
        assert not list(tmp_path.iterdir())
    assert traces(tmp_path, function, x) == 1
    with torch._functorch.config.patch(enable_autograd_cache=False):
        assert traces(tmp_path, function, x) == 1
    assert traces(tmp_path, function, x) == 0


def test_random_numbers_of_python_are_left_alone(tmp_path: Path) -> None:
    random.seed(3)
    expected = random.Random(3).random()
    module = torch.fx.symbolic_trace(lambda x: (torch.exp(x),))
    with torch.no_grad():
        call = compiled(module, [torch.ones(3)], checked, traces=Process(tmp_path).store)
    assert len(list(tmp_path.iterdir())) == 1
    torch.testing.assert_close(call(torch.ones(3)), module(torch.ones(3)))
    assert random.random() == expected


PROGRAM = """
import sys, torch
from torch._dynamo.utils import counters
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
call = torch.compile(net, backend="tuner", options={"tune": "off"})
with torch.no_grad():
    x = torch.randn(4, 8)
    torch.testing.assert_close(call(x), net(x))
print(counters["aot_autograd"]["total"])
"""


@pytest.mark.slow
def test_processes_agree_on_the_key(tmp_path: Path) -> None:
    """Also where Python hashes texts otherwise."""
    counts = []
    for seed in ("1", "2"):
        done = run_program(PROGRAM, home=tmp_path, timeout_s=300, PYTHONHASHSEED=seed)
        assert done.returncode == 0, done.stderr
        counts.append(done.stdout.split()[-1])
    assert counts == ["1", "0"]
