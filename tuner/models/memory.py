"""Where each tensor of a model lies in a call: the caller's buffers, the library's
constants, or one arena planned ahead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tuner.models.graph import Graph

ALIGNMENT = 64  # bytes, of every buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """`at` counts inputs, outputs; of the arena it is an offset in bytes. Constants are
    found by their names."""

    kind: Literal["input", "output", "constant", "arena"]
    at: int = 0


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    places: dict[str, Place]  # of every tensor that is no alias
    arena_bytes: int
    copies: tuple[
        tuple[int, str], ...
    ]  # outputs that no node writes where they belong: number of the output, its tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class _Life:
    name: str
    nbytes: int
    first: int  # the node that writes it
    last: int  # the last node that reads it

    def meets(self, other: _Life) -> bool:
        return self.first <= other.last and other.first <= self.last


def plan_memory(graph: Graph) -> MemoryPlan:
    """Tensors that are never alive together share memory: the largest are placed first,
    each as low as it fits.

    Greedy by size, as in Pisarchyk and Lee, "Efficient Memory Management for Deep
    Neural Net Inference", 2020.
    """
    places = {
        tensor.name: Place(kind="input", at=number) for number, tensor in enumerate(graph.inputs)
    }
    places |= {name: Place(kind="constant") for name in graph.constants}
    copies: list[tuple[int, str]] = []
    for number, name in enumerate(graph.outputs):
        root = graph.root(name)
        if root in places:
            copies.append((number, root))
        else:
            places[root] = Place(kind="output", at=number)
    offsets: dict[str, int] = {}
    lives = [life for life in _lives(graph) if life.name not in places]
    placed: list[_Life] = []
    for life in sorted(lives, key=lambda one: (-one.nbytes, one.first, one.name)):
        offsets[life.name] = _lowest(
            life, [(offsets[one.name], one.nbytes) for one in placed if one.meets(life)]
        )
        placed.append(life)
    arena = max((offsets[life.name] + _rounded(life.nbytes) for life in lives), default=0)
    return MemoryPlan(
        places=places | {name: Place(kind="arena", at=offset) for name, offset in offsets.items()},
        arena_bytes=arena,
        copies=tuple(copies),
    )


def _lives(graph: Graph) -> list[_Life]:
    last: dict[str, int] = {}
    for number, node in enumerate(graph.nodes):
        for tensor in node.inputs:
            last[graph.root(tensor.name)] = number
    end = len(graph.nodes)  # outputs copied at the end live until then
    last |= {graph.root(name): end for name in graph.outputs}
    return [
        _Life(name=name, nbytes=node.tensor(name).nbytes, first=number, last=last.get(name, number))
        for number, node in enumerate(graph.nodes)
        for name in node.outputs
    ]


def _lowest(life: _Life, taken: list[tuple[int, int]]) -> int:
    offset = 0
    for start, nbytes in sorted(taken):
        if offset + life.nbytes <= start:
            break
        offset = max(offset, start + _rounded(nbytes))
    return offset


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
