"""Memory plan of a model: where each tensor lies during a call.

It lies in a buffer of the caller, among the library's constants, or in the arena.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tuner.models.graph import Graph
from tuner.models.library.concurrency import Fork
from tuner.models.nodes import Branch, Node, Scan, every_node, reads_of
from tuner.workload.expression import Expression, Tensor

ALIGNMENT = 64  # bytes, of every buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of one tensor."""

    kind: Literal["input", "output", "constant", "arena"]
    # Of an input or output its number; of a constant or in the arena an offset in bytes.
    # A memory plan leaves it 0 for constants, whose layout the library decides.
    position: int = 0
    # Bytes that a slice begins behind the tensor in the first iterations of scans, and how
    # far it moves with each of the outermost scan, of the one inside of it, and so on.
    offset: int = 0
    strides: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """The places of all tensors, and what is copied at the end of a call."""

    places: dict[str, Place]  # of every tensor that is no alias, and has bytes of its own
    arena_bytes: int
    # Outputs that no node writes in place: the output's number, the tensor to copy.
    copies: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Life:
    """The positions in the order of execution between which a tensor is alive."""

    name: str
    nbytes: int
    first: int  # where it is written
    last: int  # where it is last read

    def overlaps(self, other: _Life) -> bool:
        """Whether both tensors are alive at some position."""
        return self.first <= other.last and other.first <= self.last


def plan_memory(
    graph: Graph,
    overwritable: Mapping[str, Sequence[str]] | None = None,
    scratch: Mapping[str, Mapping[str, int]] | None = None,
    alignment: int = ALIGNMENT,
    forks: Sequence[Fork] = (),
) -> MemoryPlan:
    """Plans a model's memory. Tensors that are never alive together may share it.

    `overwritable` has, by the name of a node's only result, the inputs whose memory it
    may have. It gets that of the first which is as large and is not read again. The
    largest tensor is placed first, each at the lowest offset where it fits: greedy by
    size, as in Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
    Inference", 2020.

    `scratch` has, by the name of a node's first result, the buffers that its kernel uses
    besides, with their bytes. In the arena all begin at multiples of `alignment` bytes.
    What the nodes of a fork use is alive for as long as the fork takes.

    The plan is right whether or not an output has the memory of the input that it replaces.
    It is written there at once if the input is not read any more, or may be overwritten by
    the node that reads it; else it is copied at the end, when all inputs have been read.
    """
    places = {
        tensor.name: Place(kind="input", position=number)
        for number, tensor in enumerate(graph.inputs)
    }
    places |= {name: Place(kind="constant") for name in graph.constants}
    overwritable = overwritable or {}
    every = {life.name: life for life in _lives(graph, scratch or {}, forks)}
    replaced = {output: graph.inputs[number].name for output, number in graph.replaced.items()}
    copies: list[tuple[int, str]] = []
    for number, name in enumerate(graph.outputs):
        root = graph.root(name)
        old = replaced.get(number)
        if root in places or not (
            old is None
            or _dies(every[old], every[root], overwritable)
            or (not forks and _dies_in_slices(graph, old, root, overwritable))
        ):
            copies.append((number, root))
        else:
            places[root] = Place(kind="output", position=number)
    copies.sort(key=lambda copy: copy[0] in replaced)  # what may lie over an input comes last
    offsets: dict[str, int] = {}
    alone = [life for life in every.values() if life.name not in places]
    lives, inside = _in_place(graph, alone, overwritable)
    placed: list[_Life] = []
    for life in sorted(lives, key=lambda life: (-life.nbytes, life.first, life.name)):
        occupied = [(offsets[other.name], other.nbytes) for other in placed if other.overlaps(life)]
        offsets[life.name] = _lowest_offset(life.nbytes, occupied, alignment)
        placed.append(life)
    arena = max(
        (offsets[life.name] + _rounded(life.nbytes, alignment) for life in lives), default=0
    )
    offsets |= {name: offsets[first] for name, first in inside.items()}
    return MemoryPlan(
        places=places
        | {name: Place(kind="arena", position=offset) for name, offset in offsets.items()},
        arena_bytes=arena,
        copies=tuple(copies),
    )


def _lives(
    graph: Graph, scratch: Mapping[str, Mapping[str, int]], forks: Sequence[Fork]
) -> list[_Life]:
    """The lives of the inputs, then of all tensors that nodes write, and of their kernels'
    buffers, in the order of the nodes."""
    walk = _Walk(graph, scratch)
    spans = walk.forked(forks)
    walk.read(graph.outputs)  # those that are copied are alive until after the last node
    lives = [
        _Life(
            name=tensor.name,
            nbytes=tensor.nbytes,
            first=-1,
            last=walk.last.get(tensor.name, -1),
        )
        for tensor in graph.inputs
    ]
    lives += [
        _Life(name=name, nbytes=walk.nbytes[name], first=first, last=walk.last[name])
        for name, first in walk.first.items()
    ]
    return [_lengthened(life, spans) for life in lives]


def _dies(old: _Life, new: _Life, overwritable: Mapping[str, Sequence[str]]) -> bool:
    """Whether nothing needs a tensor any more when another is written in its memory."""
    return old.last < new.first or (
        old.last == new.first and old.name in overwritable.get(new.name, ())
    )


def _dies_in_slices(
    graph: Graph, old: str, new: str, overwritable: Mapping[str, Sequence[str]]
) -> bool:
    """Whether a scan writes each slice of a tensor when nothing needs the same slice of another
    any more."""
    place = next(number for number, node in enumerate(graph.nodes) if new in node.outputs)
    scan = graph.nodes[place]
    if not isinstance(scan, Scan) or staged(scan) or new not in map(_name, scan.sequences):
        return False
    written = next((n for n, window in scan.windows.items() if window.tensor == new), None)
    slices = {n for n, window in scan.windows.items() if graph.root(window.tensor) == old}
    if written is None or len({_slices(scan, name) for name in (written, *slices)}) > 1:
        return False
    elsewhere = [*graph.outputs, *(state.initial for state in scan.states)]
    elsewhere += [state.after for state in scan.states]
    for node in (*every_node(scan.body), *graph.nodes[place + 1 :]):
        elsewhere += reads_of(node)
    if old in map(graph.root, elsewhere):
        return False
    writer = next(number for number, node in enumerate(scan.body) if written in node.outputs)
    reading = [slices & {*map(graph.root, reads_of(node))} for node in scan.body]
    return not any(reading[writer + 1 :]) and reading[writer] <= {*overwritable.get(written, ())}


def _slices(scan: Scan, name: str) -> tuple[int, int, int]:
    """Where the slices of a window begin, how far they move, and their bytes."""
    window = scan.windows[name]
    return window.start, window.step, scan.shapes[name].nbytes


def _lengthened(life: _Life, spans: Sequence[tuple[int, int]]) -> _Life:
    """The life, through all of each span of positions in which it begins or ends."""
    first, last = life.first, life.last
    for start, end in spans:
        first = start if start <= first <= end else first
        last = end if start <= last <= end else last
    return replace(life, first=first, last=last)


def _in_place(
    graph: Graph, lives: Sequence[_Life], overwritable: Mapping[str, Sequence[str]]
) -> tuple[list[_Life], dict[str, str]]:
    """The lives of what has memory of its own, each as long as what is written over it
    lives; and the names of these others, with the tensor whose memory they have."""
    own = {life.name: life for life in lives}
    inside: dict[str, str] = {}
    for life in lives:
        for name in overwritable.get(life.name, ()):
            root = graph.root(name)
            holder = own.get(inside.get(root, root))
            if holder is not None and holder.nbytes == life.nbytes and holder.last == life.first:
                own[holder.name] = replace(holder, last=life.last)
                inside[life.name] = holder.name
                del own[life.name]
                break
    return list(own.values()), inside


class _Walk:
    """Walks nodes, and those inside of them, in the order of execution."""

    def __init__(self, graph: Graph, scratch: Mapping[str, Mapping[str, int]]) -> None:
        self.graph, self.scratch = graph, scratch
        self.position = 0
        self.nbytes: dict[str, int] = {}
        self.first: dict[str, int] = {}
        self.last: dict[str, int] = {}
        self.inside: set[str] = set()  # names that lie inside of another tensor

    def forked(self, forks: Sequence[Fork]) -> list[tuple[int, int]]:
        """Walks the graph. The first and the last position of each fork."""
        spans, done = [], 0
        for fork in forks:
            self.nodes(self.graph.nodes[done : fork.start])
            start, done = self.position, fork.end
            self.nodes(self.graph.nodes[fork.start : done])
            spans.append((start, self.position - 1))
        self.nodes(self.graph.nodes[done:])
        return spans

    def nodes(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if isinstance(node, Expression):
                self.read(tensor.name for tensor in node.inputs)
                self.write(node.tensor(name) for name in node.outputs)
                for name, nbytes in self.scratch.get(node.outputs[0], {}).items():
                    self.nbytes[name] = nbytes
                    self.first[name] = self.last[name] = self.position
            elif isinstance(node, Scan):
                self.scan(node)
            else:
                self.branch(node)
            self.position += 1

    def read(self, names: Iterable[str]) -> None:
        for name in names:
            self.last[self.graph.root(name)] = self.position

    def write(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            if tensor.name not in self.inside:
                self.nbytes[tensor.name] = tensor.nbytes
                self.first[tensor.name] = self.last[tensor.name] = self.position

    def scan(self, scan: Scan) -> None:
        """What an iteration finds or leaves is alive in all of them."""
        copied = [scan.shapes[name] for name in staged(scan)]
        self.inside |= scan.windows.keys()
        self.inside -= {tensor.name for tensor in copied}
        lasting = [*scan.results, *copied]
        self.write(lasting)
        self.inside |= {tensor.name for tensor in copied}
        self.position += 1
        self.nodes(scan.body)
        self.read([*scan.reads, *(state.after for state in scan.states)])
        self.read(tensor.name for tensor in lasting)

    def branch(self, branch: Branch) -> None:
        """Both sides write the results where these lie."""
        self.read([branch.condition])
        self.write(branch.results)
        self.position += 1
        for side in (branch.then, branch.other):
            self.inside |= {*side.in_place.values()}
            self.nodes(side.nodes)
            self.read(side.results)
        self.read(branch.outputs)


def _name(tensor: Tensor) -> str:
    return tensor.name


def staged(scan: Scan) -> tuple[str, ...]:
    """Windows that kernels cannot work on where they are, because slices are not aligned."""
    return tuple(name for name, shape in scan.shapes.items() if shape.nbytes % ALIGNMENT)


def _lowest_offset(nbytes: int, occupied: list[tuple[int, int]], alignment: int) -> int:
    """The lowest offset with `nbytes` free. `occupied` has pairs of offset and bytes."""
    offset = 0
    for start, size in sorted(occupied):
        if offset + nbytes <= start:
            break
        offset = max(offset, start + _rounded(size, alignment))
    return offset


def _rounded(nbytes: int, alignment: int) -> int:
    """The bytes rounded up to whole multiples of the alignment."""
    return -(-nbytes // alignment) * alignment
