"""Memory plan of a model: where each tensor lies during a call.

It lies in a buffer of the caller, among the library's constants, or in the arena.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tuner.models.graph import Graph
from tuner.models.scan import Scan, reads_of

ALIGNMENT = 64  # bytes, of every buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of one tensor."""

    kind: Literal["input", "output", "constant", "arena"]
    # Of an input or output its number; of a constant or in the arena an offset in bytes.
    # A memory plan leaves it 0 for constants, whose layout the library decides.
    position: int = 0
    # Bytes that a slice begins behind the tensor in the first iteration of a scan, and how
    # far it moves with each.
    offset: int = 0
    stride: int = 0


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """The places of all tensors, and what is copied at the end of a call."""

    places: dict[str, Place]  # of every tensor that is no alias
    arena_bytes: int
    # Outputs that no node writes in place: the output's number, the tensor to copy.
    copies: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Life:
    """The nodes between which a tensor is alive."""

    name: str
    nbytes: int
    first: int  # the node that writes it
    last: int  # the last node that reads it

    def overlaps(self, other: _Life) -> bool:
        """Whether both tensors are alive at some node."""
        return self.first <= other.last and other.first <= self.last


def plan_memory(graph: Graph) -> MemoryPlan:
    """Plans a model's memory. Tensors that are never alive together may share it.

    The largest tensor is placed first, each at the lowest offset where it fits: greedy by
    size, as in Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
    Inference", 2020.
    """
    places = {
        tensor.name: Place(kind="input", position=number)
        for number, tensor in enumerate(graph.inputs)
    }
    places |= {name: Place(kind="constant") for name in graph.constants}
    copies: list[tuple[int, str]] = []
    for number, name in enumerate(graph.outputs):
        root = graph.root(name)
        if root in places:
            copies.append((number, root))
        else:
            places[root] = Place(kind="output", position=number)
    offsets: dict[str, int] = {}
    lives = [life for life in _lives(graph) if life.name not in places]
    placed: list[_Life] = []
    for life in sorted(lives, key=lambda life: (-life.nbytes, life.first, life.name)):
        occupied = [(offsets[other.name], other.nbytes) for other in placed if other.overlaps(life)]
        offsets[life.name] = _lowest_offset(life.nbytes, occupied)
        placed.append(life)
    arena = max((offsets[life.name] + _rounded(life.nbytes) for life in lives), default=0)
    return MemoryPlan(
        places=places
        | {name: Place(kind="arena", position=offset) for name, offset in offsets.items()},
        arena_bytes=arena,
        copies=tuple(copies),
    )


def _lives(graph: Graph) -> list[_Life]:
    """The lives of all tensors that nodes write, in the order of the nodes."""
    last: dict[str, int] = {}
    for number, node in enumerate(graph.nodes):
        for name in reads_of(node):
            last[graph.root(name)] = number
    end = len(graph.nodes)  # outputs that are copied are alive until after the last node
    last |= {graph.root(name): end for name in graph.outputs}
    lives = []
    for number, node in enumerate(graph.nodes):
        for name in node.outputs:
            nbytes, until = node.tensor(name).nbytes, last.get(name, number)
            lives.append(_Life(name=name, nbytes=nbytes, first=number, last=until))
        if isinstance(node, Scan):
            inside = (*node.temporaries, *(node.shapes[name] for name in staged(node)))
            lives += [
                _Life(name=tensor.name, nbytes=tensor.nbytes, first=number, last=number)
                for tensor in inside
            ]
    return lives


def staged(scan: Scan) -> tuple[str, ...]:
    """Windows that kernels cannot work on where they are, because slices are not aligned."""
    return tuple(name for name, shape in scan.shapes.items() if shape.nbytes % ALIGNMENT)


def _lowest_offset(nbytes: int, occupied: list[tuple[int, int]]) -> int:
    """The lowest offset with `nbytes` free. `occupied` has pairs of offset and bytes."""
    offset = 0
    for start, size in sorted(occupied):
        if offset + nbytes <= start:
            break
        offset = max(offset, start + _rounded(size))
    return offset


def _rounded(nbytes: int) -> int:
    """The bytes rounded up to whole multiples of the alignment."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
