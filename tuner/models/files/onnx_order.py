"""The order of the operators of an ONNX graph: each behind those whose results it reads."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any


def sort_operators(graph: Any) -> None:
    """Sorts the operators of a `GraphProto` and of those inside of it, in place.

    The standard wants it so. Some converters append operators at the end, and ONNX Runtime
    takes their files. Operators in order stay as they are; those of a cycle come last.
    """
    for op in graph.node:
        for inner in graphs_of(op):
            sort_operators(inner)
    makers = {name: place for place, op in enumerate(graph.node) for name in op.output if name}
    sources = [{makers[name] for name in _reads(op) if name in makers} for op in graph.node]
    if all(max(before, default=-1) < place for place, before in enumerate(sources)):
        return
    readers: list[list[int]] = [[] for _ in sources]
    for place, before in enumerate(sources):
        for source in before:
            readers[source].append(place)
    missing = [len(before) for before in sources]
    ready = [place for place, count in enumerate(missing) if not count]
    heapify(ready)
    order: list[int] = []
    while ready:
        order.append(heappop(ready))
        for place in readers[order[-1]]:
            missing[place] -= 1
            if not missing[place]:
                heappush(ready, place)
    ranks = {place: rank for rank, place in enumerate(order)}
    ranked = {name: ranks.get(place, len(sources)) for name, place in makers.items()}
    graph.node.sort(key=lambda op: next((ranked[name] for name in op.output if name), -1))


def graphs_of(op: Any) -> Iterator[Any]:
    """The graphs inside of an operator."""
    for attribute in op.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _reads(op: Any) -> Iterator[str]:
    """Names that an operator reads, and those that the graphs inside of it do."""
    yield from op.input
    for graph in graphs_of(op):
        yield from (value.name for value in graph.output)
        for inner in graph.node:
            yield from _reads(inner)
