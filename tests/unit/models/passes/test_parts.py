"""Maps computed part by part: the same results, from scans where a cache is too small."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from tests.support.graph_values import graph_outputs
from tuner.models.graph import Graph, check_graph
from tuner.models.graph_archive import packed, unpacked
from tuner.models.library.memory import plan_memory
from tuner.models.nodes import Scan
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.scalars import unary
from tuner.models.passes.fusion import fuse
from tuner.models.passes.parts import in_parts

SHAPE = (96, 128)


def momentum(shape: tuple[int, ...] = SHAPE, *, turned: bool = False, again: bool = False) -> Graph:
    """A step with momentum: a scalar grows by one and divides; three inputs are replaced.

    The speed may be read at other places, and what it was before once more.
    """
    builder = GraphBuilder()
    place, speed, gradient = (builder.input(shape, "float32") for _ in range(3))
    count = elementwise("count", lambda a: a + 1.0, builder.input((), "float32"))
    faster = elementwise("faster", lambda a, b: a * 0.5 + b, speed, gradient)
    read = faster.view(shape, lambda i, j: (shape[0] - 1 - i, j)) if turned else faster
    moved = elementwise(
        "moved", lambda a, b, n: a - unary("sqrt", unary("abs", b)) / n, place, read, count
    )
    results, labels = [moved, faster, count], ["p", "s", "g", "n", "p2", "s2", "n2"]
    if again:
        results.append(elementwise("before", lambda a, b: a * b, speed, moved))
        labels.append("before")
    graph = fuse(builder.graph(results, labels))
    return replace(graph, replacing={"p2": "p", "s2": "s", "n2": "n"})


def values(graph: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.random(tensor.shape).astype(np.float32) + 0.5 for tensor in graph.inputs]


def scans(graph: Graph) -> list[Scan]:
    return [node for node in graph.nodes if isinstance(node, Scan)]


def every_operand(graph: Graph) -> dict[str, tuple[str, ...]]:
    """As if each kernel read all operands before it wrote anything."""
    return {
        node.outputs[0]: tuple(graph.root(tensor.name) for tensor in node.inputs)
        for node in graph.expressions
    }


@pytest.mark.parametrize(
    ("cache_bytes", "count"),
    [
        (1 << 18, None),  # holds all
        (1 << 17, 4),
        (90_000, 6),
        (1 << 16, None),  # parts would be too small
    ],
)
def test_parts_fit_into_the_cache(cache_bytes: int, count: int | None) -> None:
    graph = momentum()
    split = in_parts(graph, cache_bytes)
    check_graph(split)
    assert [scan.count for scan in scans(split)] == ([] if count is None else [count])
    outputs = (graph_outputs(each, values(graph)) for each in (split, graph))
    for got, right in zip(*outputs, strict=True):
        np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize(
    "graph",
    [
        momentum(turned=True),  # another place is read
        momentum((3, 32771)),  # in no equal parts that are aligned
    ],
)
def test_other_maps_stay_whole(graph: Graph) -> None:
    assert in_parts(graph, 1 << 17) is graph


def test_slices_are_written_over_the_inputs_that_they_replace() -> None:
    split = in_parts(momentum(), 1 << 17)
    assert unpacked(packed(split)) == split
    (scan,) = scans(split)
    every = every_operand(split)
    assert not plan_memory(split, every).copies
    # What a kernel may not write over is copied after the scan.
    plan = plan_memory(split, {**every, scan.body[-1].outputs[0]: ()})
    assert [number for number, _ in plan.copies] == [0]
    assert plan.arena_bytes == prod(SHAPE) * 4


def test_a_slice_that_is_read_again_stays() -> None:
    split = in_parts(momentum(again=True), 1 << 17)
    assert [len(scan.body) for scan in scans(split)] == [3]
    assert [number for number, _ in plan_memory(split, every_operand(split)).copies] == [1]
