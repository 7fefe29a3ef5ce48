"""How a recorded call and the function that computes it go together."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.models.graph import Graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The tensor that a call gives, and how it lies in memory."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements, without gaps
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A call's graph, and what goes in and comes out where the library's call stood."""

    graph: Graph
    inputs: tuple[int, ...]  # the number of the argument that each input of the graph is
    # Of a call that gives a single new tensor; None for others.
    result: Result | None
    overload: str | None = None  # of PyTorch's operator, such as aten::add.Tensor


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of a tensor that lies in memory in the order of its dimensions."""
    strides, following = [], 1
    for extent in reversed(shape):
        strides.append(following)
        following *= max(extent, 1)
    return tuple(reversed(strides))
