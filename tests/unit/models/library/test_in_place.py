"""Results written over an operand in a model's library."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.graph_values import graph_outputs
from tests.support.model_kernels import compiled
from tests.support.targets import host_target
from tuner.export.kernel import ExportKernel
from tuner.export.library import function_of
from tuner.models.errors import ModelRefused
from tuner.models.graph import Graph, check_graph
from tuner.models.library.library import ModelNumbers, model_kernel
from tuner.models.library.memory import Place, plan_memory
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.contraction import matmul
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.movement import reshape
from tuner.models.operators.scalars import unary
from tuner.models.passes.fusion import fuse
from tuner.models.workloads import workload_of
from tuner.runtime.link import link
from tuner.runtime.loader import Library

ROWS, COLUMNS = 12, 48
X = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)


def residual(*, aliased: bool = False) -> Graph:
    """A map, a product that adds its result, and a sum of rows. Or the product's epilogue
    reads the map's result under another shape too, at other places."""
    builder = GraphBuilder()
    x = builder.input((ROWS, COLUMNS), "float32")
    weight = np.random.default_rng(1).standard_normal((COLUMNS, COLUMNS)).astype(np.float32)
    map_ = elementwise("tanh", lambda a: unary("tanh", a), x)
    product = matmul(x, builder.constant(weight / 8))
    total = elementwise("add", lambda a, b: a + b, product, map_)
    if aliased:
        other = reshape(map_, [COLUMNS, ROWS])
        total = elementwise(
            "add", lambda a, b: a + b, total, other.view((ROWS, COLUMNS), lambda i, j: (j, i))
        )
    rows = builder.reduce("sum", "sum", [ROWS], [COLUMNS], lambda i, j: total[i, j])
    return fuse(builder.graph([rows], ["x", "y"]))


def run(graph: Graph, kernels: dict[str, ExportKernel], path: Path) -> np.ndarray:
    built = model_kernel(graph, kernels, host_target(), 1, "net", ModelNumbers())
    path.write_bytes(link("net", [function_of(built)]))
    result = Library(path).function("net")(X)
    assert isinstance(result, np.ndarray)
    return result


def test_a_product_is_written_over_its_residual(tmp_path: Path) -> None:
    """With random schedules, some of whose tiles overlap."""
    graph = residual()
    assert len(graph.nodes) == 3
    first, product, last = (workload_of(node, graph) for node in graph.expressions)
    kernels = {each.key: compiled(each, None) for each in (first, last)}
    allowed = []
    for seed in range(6):
        kernel = compiled(product, seed)
        allowed.append(bool(kernel.overwritable))
        got = run(graph, {**kernels, product.key: kernel}, tmp_path / f"{seed}.so")
        np.testing.assert_allclose(got, graph_outputs(graph, [X])[0], rtol=1e-4, atol=1e-4)
    assert any(allowed), "no schedule computes each element once: nothing was tried in place"


def test_the_plan_has_one_tensor_for_both() -> None:
    graph = residual()
    map_, product = (node.outputs[0] for node in graph.expressions[:2])
    apart, shared = plan_memory(graph), plan_memory(graph, {product: [map_]})
    assert apart.arena_bytes == 2 * shared.arena_bytes
    assert shared.places[map_] == shared.places[product]


def replaced(*, read_again: bool = False) -> Graph:
    """An input that its double replaces; its negative may be computed after that."""
    builder = GraphBuilder()
    x = builder.input((ROWS, COLUMNS), "float32")
    results = [elementwise("double", lambda a: a + a, x)]
    if read_again:
        results.append(elementwise("negative", lambda a: -a, x))
    graph = builder.graph(results, ["x", *("y", "z")[: len(results)]])
    return replace(graph, replacing={"y": "x"})


def test_a_result_is_written_over_the_input_that_it_replaces() -> None:
    graph = replaced()
    plan = plan_memory(graph, {graph.outputs[0]: ["in0"]})
    assert plan.places[graph.outputs[0]] == Place(kind="output", position=0)
    assert not plan.copies and plan.arena_bytes == 0


def test_an_input_that_is_read_again_is_replaced_at_the_end() -> None:
    for graph, operands in ((replaced(), []), (replaced(read_again=True), ["in0"])):
        name = graph.outputs[0]
        plan = plan_memory(graph, {name: operands})
        assert plan.places[name].kind == "arena" and plan.copies == ((0, name),)


@pytest.mark.parametrize("replacing", [{"y": "z"}, {"x": "y"}, {"z": "x"}, {"y": "x", "w": "x"}])
def test_only_results_of_the_same_size_replace_inputs(replacing: dict[str, str]) -> None:
    builder = GraphBuilder()
    x = builder.input((ROWS, COLUMNS), "float32")
    double = elementwise("double", lambda a: a + a, x)
    rows = builder.reduce("sum", "sum", [ROWS], [COLUMNS], lambda i, j: x[i, j])
    other = elementwise("other", lambda a: -a, x)
    graph = builder.graph([double, rows, other], ["x", "y", "z", "w"])
    with pytest.raises(ModelRefused, match="replace"):
        check_graph(replace(graph, replacing=replacing))
    check_graph(replace(graph, replacing={"w": "x"}))


def test_an_operand_that_is_read_under_two_names_stays(tmp_path: Path) -> None:
    """The kernel takes two inputs then, and may only say of one that it can be overwritten."""
    graph = residual(aliased=True)
    keys = [workload_of(node, graph) for node in graph.expressions]
    kernels = {each.key: compiled(each, None) for each in keys}
    position = next(n for n, node in enumerate(graph.expressions) if len(node.inputs) == 4)
    node, key = graph.expressions[position], keys[position].key
    place = next(n for n, tensor in enumerate(node.inputs) if tensor.shape == (ROWS, COLUMNS) and n)
    kernels[key] = replace(kernels[key], overwritable=(place,))
    got = run(graph, kernels, tmp_path / "net.so")
    np.testing.assert_allclose(got, graph_outputs(graph, [X])[0], rtol=1e-4, atol=1e-4)
