"""Which nodes of a model are fast: chosen by tables of times and errors; and a library with
both variants, which computes each choice."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support import onnx_networks as nets
from tests.support.model_kernels import compiled, fast_config, kernel_of
from tests.support.targets import host_target
from tuner.export.library import function_of
from tuner.models.executors.profile import spent_seconds
from tuner.models.executors.switching import switched_errors
from tuner.models.graph import Graph
from tuner.models.graph_archive import packed, unpacked
from tuner.models.library.layout import Switches
from tuner.models.library.library import ModelNumbers, model_kernel
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.quantization import Layout, dequantize, quantize
from tuner.models.reading import read_graph
from tuner.models.reference.accuracy import TOLERANCE, greatest_error, tolerance_of
from tuner.models.reference.amplification import allowed_error, amplified
from tuner.models.reference.evaluation import evaluate_graph
from tuner.models.tuning.numerics import NodeTimes, NumericsPolicy, choose_numerics
from tuner.models.workloads import all_fast, fast_switches, with_fast_variants, workloads_of
from tuner.runtime.link import link
from tuner.runtime.loader import Library
from tuner.workload.dtypes import DType

STRICT_ERROR = 1e-7


class Table:
    """Errors of nodes that add up, and a count of what was measured."""

    def __init__(self, errors: Mapping[str, float], strict: float = STRICT_ERROR) -> None:
        self.errors, self.strict = errors, strict
        self.measured = 0

    def __call__(self, choices: Sequence[frozenset[str]]) -> Sequence[float]:
        self.measured += len(choices)
        return [self.strict + sum(self.errors[name] for name in choice) for choice in choices]


def times(**seconds: tuple[float, float]) -> dict[str, NodeTimes]:
    return {
        name: NodeTimes(label=name, strict_s=strict_s, fast_s=fast_s)
        for name, (strict_s, fast_s) in seconds.items()
    }


def test_all_that_is_faster_is_fast_where_the_bound_allows_it() -> None:
    nodes = times(a=(4.0, 2.0), b=(1.0, 0.5), slower=(1.0, 3.0))
    table = Table({"a": 1e-5, "b": 1e-6, "slower": 1e-6})
    choice = choose_numerics(nodes, 10.0, 1e-3, table)
    assert choice.chosen.fast == {"a", "b"}
    assert choice.chosen.seconds == 10.0 + 2.0 + 0.5 + 1.0
    assert choice.chosen.error == pytest.approx(1.11e-5)
    assert [len(tried.fast) for tried in choice.tried] == [0, 2]


def test_what_saves_least_for_its_error_is_strict_again_first() -> None:
    nodes = times(much=(9.0, 1.0), little=(2.0, 1.0), cheap=(3.0, 2.0))
    table = Table({"much": 5e-4, "little": 8e-4, "cheap": 1e-6})
    assert choose_numerics(nodes, 0.0, 1e-3, table).chosen.fast == {"much", "cheap"}
    assert choose_numerics(nodes, 0.0, 2e-4, table).chosen.fast == {"cheap"}
    assert choose_numerics(nodes, 0.0, 5e-7, table).chosen.fast == frozenset()


def test_the_choice_of_many_is_halved_to() -> None:
    """No more nodes are strict than have to be, and few choices are measured."""
    count = 100
    nodes = times(**{f"n{i}": (2.0 + i, 1.0) for i in range(count)})
    table = Table(dict.fromkeys(nodes, 1e-5))
    choice = choose_numerics(nodes, 0.0, 5.05e-4, table)
    assert choice.chosen.fast == {f"n{i}" for i in range(50, 100)}
    assert table.measured <= 2 + count + 7


def test_without_a_fast_node_there_is_the_strict_choice() -> None:
    slower = choose_numerics(times(a=(1.0, 2.0)), 0.0, 1e-3, Table({"a": 0.0}))
    alone = choose_numerics(times(a=(2.0, 1.0)), 0.0, 1e-3, Table({"a": 2e-3}))
    missed = choose_numerics(times(a=(2.0, 1.0)), 0.0, 1e-9, Table({"a": 1e-6}))
    undefined = choose_numerics(times(a=(2.0, 1.0)), 0.0, 1e-3, Table({"a": float("inf")}))
    assert [choice.chosen.fast for choice in (slower, alone, missed, undefined)] == [
        frozenset()
    ] * 4


def test_a_bound_lets_nodes_be_fast_unless_they_are_to_be_strict() -> None:
    assert not NumericsPolicy.of(None, None).fast
    assert NumericsPolicy.of("fast", None).fast
    assert NumericsPolicy.of(None, 1e-3) == NumericsPolicy(fast=True, max_error=1e-3)
    assert NumericsPolicy.of("strict", 1e-3) == NumericsPolicy(fast=False, max_error=1e-3)


def convolutions() -> Graph:
    """Two equal convolutions of 3x3 windows, which have Winograd's algorithm, then a sum."""
    make = nets.Maker(seed=3)
    value = "x"
    for _ in range(2):
        value = make.add("Relu", make.conv(value, (8, 8), 3))
    net = make.model({"x": (1, 8, 6, 6)}, make.add("GlobalAveragePool", value), (1, 8, 1, 1))
    return read_graph(nets.serialized(net), {})


def convolved(graph: Graph) -> tuple[str, ...]:
    return tuple(node.outputs[0] for node in graph.expressions if node.name == "conv2d")


def test_the_workloads_of_a_model_with_fast_variants() -> None:
    graph, target = convolutions(), replace(host_target(), isa=("avx2", "fma"))
    parts = with_fast_variants(graph, target)
    assert [part.workload.numerics for part in parts] == ["strict"] * 3 + ["fast"]
    assert len({part.workload.key for part in parts}) == 4
    assert parts[-1].calls == 2
    fast = all_fast(graph, target)
    assert tuple(fast_switches(fast)) == convolved(graph)
    assert unpacked(packed(fast)).fast == fast.fast
    assert packed(replace(fast, fast=frozenset())) == packed(graph)


def test_a_library_with_both_variants_computes_each_choice(tmp_path: Path) -> None:
    target, cores = host_target(), sorted(os.sched_getaffinity(0))[:1]
    graph = convolutions()
    offered = replace(graph, fast=frozenset(convolved(graph)))
    kernels = {part.workload.key: compiled(part.workload, None) for part in workloads_of(graph)}
    (both_calls,) = (part.workload for part in workloads_of(offered) if part.calls == 2)
    kernels[both_calls.key] = kernel_of(both_calls, fast_config(both_calls))

    def library(name: str, chosen: Graph, switches: Switches | None = None) -> Path:
        profiled = switches is not None
        built = model_kernel(
            chosen, kernels, target, 1, name, ModelNumbers(), profiled=profiled, switches=switches
        )
        path = tmp_path / f"{name}.so"
        path.write_bytes(link(name, [function_of(built)]))
        return path

    names = fast_switches(offered)
    both = library("both", graph, names)
    rng = np.random.default_rng(5)
    inputs = [[rng.standard_normal((1, 8, 6, 6)).astype(np.float32)] for _ in range(2)]
    right = [[evaluate_graph(graph, given)[graph.outputs[0]]] for given in inputs]
    switches = [[False, False], [True, False], [False, True], [True, True]]
    errors = switched_errors(both, "both", switches, inputs, right, cores)
    assert max(errors) < 1e-5
    for spent in spent_seconds(both, "both", inputs[0], switches, cores, 0.1):
        assert len(spent.steps) == len(graph.expressions) and min(spent.steps) > 0
        assert max(spent.steps) < spent.whole_s
    for number, row in enumerate(switches):
        fast = frozenset(name for name, on in zip(names, row, strict=True) if on)
        alone = library(f"alone{number}", replace(graph, fast=fast))
        run = Library(alone).function(f"alone{number}")
        got = [greatest_error([run(*x)], y) for x, y in zip(inputs, right, strict=True)]
        assert errors[number] == max(got)


def stored_as(dtype: DType, count: int) -> Graph:
    """A chain of elementwise nodes that nothing joins: each result is an output."""
    builder = GraphBuilder()
    value = builder.input([64], dtype)
    results = []
    for _ in range(count):
        value = elementwise("scale", lambda e: e * 0.5 + 1, value)
        results.append(value)
    return builder.graph(results, ["x", *(f"y{n}" for n in range(count))])


def test_the_tolerance_follows_from_what_is_stored() -> None:
    assert tolerance_of(stored_as("float32", 9)) == TOLERANCE
    assert tolerance_of(stored_as("float16", 1)) == pytest.approx(4 * 2.0**-11)
    assert tolerance_of(stored_as("float16", 9)) == pytest.approx(4 * 3 * 2.0**-11)
    assert tolerance_of(stored_as("bfloat16", 1)) == pytest.approx(4 * 2.0**-8)


def test_a_step_of_quantised_integers_is_tolerated() -> None:
    builder = GraphBuilder()
    x, scale = builder.input([64], "float32"), builder.constant(np.float32(0.1))
    steps = quantize(x, scale, None, Layout(), "int8")
    graph = builder.graph([steps, dequantize(steps, scale, None, Layout())], ["x", "q", "y"])
    assert tolerance_of(graph) == pytest.approx(4 / 255)
    widened = GraphBuilder()
    q = widened.input([64], "int8")
    y = dequantize(q, widened.constant(np.float32(0.1)), None, Layout())
    assert tolerance_of(widened.graph([y], ["q", "y"])) == TOLERANCE


def test_what_a_quantised_network_amplifies_is_measured() -> None:
    """A number at the half between two steps, behind which a step is a part of the output."""

    def graph(amount: float) -> Graph:
        builder = GraphBuilder()
        x, scale = builder.input([64], "float32"), builder.constant(np.float32(0.1))
        q = quantize(x, scale, None, Layout(), "int8")
        y = elementwise("less", lambda e: e - amount, dequantize(q, scale, None, Layout()))
        return builder.graph([y], ["x", "y"])

    at_half, steady = [np.full(64, 10.05, np.float32)], [np.full(64, 10.02, np.float32)]
    for shallow, allowed in ((graph(9.0), 0.4), (graph(9.8), 0.5)):  # 1 or 0.2, and a step of 0.1
        assert amplified(shallow, at_half) == pytest.approx(allowed, rel=0.1)
        assert amplified(shallow, steady) < 1e-3
        assert allowed_error(shallow, at_half, 0.1, 0.2) == amplified(shallow, at_half)
        assert allowed_error(shallow, at_half, 0.1, 0.05) == 0.1
    assert allowed_error(stored_as("float32", 9), steady, TOLERANCE, 0.2) == TOLERANCE


def test_what_a_difference_of_large_numbers_loses_is_allowed() -> None:
    builder = GraphBuilder()
    difference = elementwise("less", lambda e: e - 100, builder.input([64], "float32"))
    graph, x = builder.graph([difference], ["x", "y"]), np.full(64, 100.01, np.float32)
    moved = 2 * 100 * 2.0**-20 / 0.01  # the input and the constant, each by 16 units of 2^-24
    assert allowed_error(graph, [x], TOLERANCE, 0.05) == pytest.approx(4 * moved, rel=0.1)
    assert allowed_error(graph, [x], TOLERANCE, TOLERANCE) == TOLERANCE


def test_an_error_is_relative_to_each_outputs_greatest_value() -> None:
    right = [np.array([1.0, -100.0]), np.array([1e-3])]
    assert greatest_error([np.array([2.0, -100.0]), np.array([1e-3])], right) == 0.01
    assert greatest_error([np.array([1.0, -100.0]), np.array([2e-3])], right) == 1.0
