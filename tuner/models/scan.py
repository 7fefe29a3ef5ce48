"""Nodes of a graph that are repeated along a dimension, as recurrent layers have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from tuner.workload.expression import DTYPE_BYTES, Expression, Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A slice of a tensor along its first dimension that moves with the iterations: slice
    `start + step * t` in iteration t."""

    tensor: str
    start: int
    step: int


@dataclass(frozen=True, kw_only=True)
class Scan:
    """Expressions that are computed `count` times, one iteration after the other.

    They read and write windows, results of earlier expressions of the same iteration, and
    whole tensors from outside. `sequences` are the tensors that the windows written make
    up; the first slice of one named in `initial` is copied from a tensor before the first
    iteration, as the state that it begins from.
    """

    name: str
    count: int
    body: tuple[Expression, ...]
    windows: Mapping[str, Window]  # by the name that the body reads or writes
    shapes: Mapping[str, Tensor]  # of the windows
    sequences: tuple[Tensor, ...]
    initial: Mapping[str, str]  # sequence -> tensor

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.sequences)

    def tensor(self, name: str) -> Tensor:
        return next(tensor for tensor in self.sequences if tensor.name == name)

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors from outside, each once; those behind windows included."""
        own = {name for node in self.body for name in node.outputs} | {*self.outputs}
        names = [window.tensor for window in self.windows.values()]
        names += [tensor.name for node in self.body for tensor in node.inputs]
        names += self.initial.values()
        return tuple(dict.fromkeys(n for n in names if n not in own and n not in self.windows))

    @property
    def temporaries(self) -> tuple[Tensor, ...]:
        """Results of the body that are no windows; they live within an iteration."""
        return tuple(
            node.tensor(name)
            for node in self.body
            for name in node.outputs
            if name not in self.windows
        )

    @property
    def flops(self) -> int:
        return self.count * sum(node.flops for node in self.body)

    @property
    def nbytes(self) -> int:
        return self.count * sum(node.nbytes for node in self.body)


Node = Expression | Scan


def reads_of(node: Node) -> tuple[str, ...]:
    """The names of the tensors that a node reads."""
    return node.reads if isinstance(node, Scan) else tuple(t.name for t in node.inputs)


def calls(nodes: tuple[Node, ...]) -> Iterator[tuple[Expression, int]]:
    """The expressions of a graph in order, with how often each is computed."""
    for node in nodes:
        if isinstance(node, Scan):
            yield from ((inner, node.count) for inner in node.body)
        else:
            yield node, 1


def slice_bytes(tensor: Tensor) -> int:
    """Of a slice along the first dimension."""
    return prod(tensor.shape[1:]) * DTYPE_BYTES[tensor.dtype]
