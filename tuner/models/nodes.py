"""Nodes of a graph: expressions, scans that repeat nodes, and branches that choose some."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import Expression, Tensor

NO_LIMIT = 1 << 48  # iterations of a scan that only its condition ends
_ASSUMED = 8  # iterations of a scan that a condition ends, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A slice of a tensor along its first dimension that moves with the iterations: slice
    `start + step * t` in iteration t."""

    tensor: str
    start: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A tensor that iterations read, and give the value that the next one reads.

    After the last iteration it is a result of the scan. One whose slices the body writes where
    they lie, through windows, stays as it is besides, and the body does not read it.
    """

    tensor: Tensor
    initial: str  # copied into it before the first iteration
    after: str  # copied into it at the end of each; itself where it stays as it is


@dataclass(frozen=True, kw_only=True)
class Scan:
    """Nodes that are computed `count` times, one iteration after the other.

    They read windows, states, results of earlier nodes of the same iteration, and whole
    tensors from outside. `sequences` are the tensors that the windows written make up, states
    those of which they replace slices.

    With a condition, a state of dtype bool, the iterations end as soon as it is false. What
    sequences have in the place of further slices has no meaning.
    """

    name: str
    count: int
    body: tuple[Node, ...]
    windows: Mapping[str, Window]  # by the name that the body reads or writes
    shapes: Mapping[str, Tensor]  # of the windows
    sequences: tuple[Tensor, ...]
    states: tuple[State, ...]
    condition: str | None = None

    @property
    def results(self) -> tuple[Tensor, ...]:
        return (*(state.tensor for state in self.states), *self.sequences)

    @property
    def written(self) -> Mapping[str, Window]:
        """The windows that the body writes."""
        names = {*_written(self.body)}
        return {name: window for name, window in self.windows.items() if name in names}

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.results)

    def tensor(self, name: str) -> Tensor:
        return next(tensor for tensor in self.results if tensor.name == name)

    @property
    def bodies(self) -> tuple[tuple[Node, ...], ...]:
        return (self.body,)

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors from outside, each once; those behind windows included."""
        names = [window.tensor for window in self.windows.values()]
        names += [state.initial for state in self.states]
        names += [state.after for state in self.states]
        own = {*self.outputs, *self.windows, *_written(self.body)}
        return _without(own, [*names, *_read(self.body)])

    @property
    def repeats(self) -> int:
        """How often the body is computed; of a scan with a condition an assumption."""
        return self.count if self.condition is None else min(self.count, _ASSUMED)

    @property
    def flops(self) -> int:
        return self.repeats * sum(node.flops for node in self.body)

    @property
    def nbytes(self) -> int:
        return self.repeats * sum(node.nbytes for node in self.body)


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of a branch: its nodes, and the tensors that become the branch's results.

    Those that its nodes write are written where the result lies, the others are copied.
    """

    nodes: tuple[Node, ...]
    results: tuple[str, ...]
    # Why the model's side could not be read; a call that would compute it fails.
    refusal: str = ""

    @property
    def in_place(self) -> dict[int, str]:
        """The results that its nodes write, each once, by their number."""
        written = {*_written(self.nodes)}
        return {
            number: name
            for number, name in enumerate(self.results)
            if name in written and name not in self.results[:number]
        }


@dataclass(frozen=True, kw_only=True)
class Branch:
    """Two bodies, of which the one that a condition chooses is computed."""

    name: str
    condition: str  # a tensor of one element and dtype bool
    then: Side
    other: Side
    results: tuple[Tensor, ...]

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.results)

    def tensor(self, name: str) -> Tensor:
        return next(tensor for tensor in self.results if tensor.name == name)

    @property
    def bodies(self) -> tuple[tuple[Node, ...], ...]:
        return (self.then.nodes, self.other.nodes)

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors from outside, each once."""
        inner = (name for nodes in self.bodies for name in _read(nodes))
        own = {name for nodes in self.bodies for name in _written(nodes)}
        copied = (*self.then.results, *self.other.results)
        return _without(own, [self.condition, *inner, *copied])

    @property
    def repeats(self) -> int:
        return 1

    @property
    def flops(self) -> int:
        return max(sum(node.flops for node in nodes) for nodes in self.bodies)

    @property
    def nbytes(self) -> int:
        return max(sum(node.nbytes for node in nodes) for nodes in self.bodies)


Control = Scan | Branch
Node = Expression | Control


def _written(nodes: Iterable[Node]) -> Iterator[str]:
    return (name for node in nodes for name in node.outputs)


def _read(nodes: Iterable[Node]) -> Iterator[str]:
    return (name for node in nodes for name in reads_of(node))


def _without(own: set[str], names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(names) if name not in own)


def reads_of(node: Node) -> tuple[str, ...]:
    """The names of the tensors that a node reads."""
    return tuple(t.name for t in node.inputs) if isinstance(node, Expression) else node.reads


def every_node(nodes: Iterable[Node]) -> Iterator[Node]:
    """The nodes and those inside of them, a node before what is inside of it."""
    for node in nodes:
        yield node
        if not isinstance(node, Expression):
            for body in node.bodies:
                yield from every_node(body)


def calls(nodes: Iterable[Node], repeated: int = 1) -> Iterator[tuple[Expression, int]]:
    """The expressions of nodes in order, with how often each is computed at most."""
    for node in nodes:
        if isinstance(node, Expression):
            yield node, repeated
            continue
        for body in node.bodies:
            yield from calls(body, repeated * node.repeats)


def slice_bytes(tensor: Tensor) -> int:
    """Of a slice along the first dimension."""
    return prod(tensor.shape[1:]) * DTYPE_BYTES[tensor.dtype]
