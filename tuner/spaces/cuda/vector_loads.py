"""Loads of vectors for a body that is computed lane by lane: what it reads along the
lanes, into registers first.

Mathematical functions have no vectors on a GPU, and a lane that is computed by itself
is loaded and stored by itself, too: a quarter of each transaction is used, as
neighbouring threads lie a vector apart. So memory is read and written in vectors from
and to registers, and the lanes are computed between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tuner.target.cuda import VECTOR_BYTES
from tuner.workload.bounds import linear
from tuner.workload.expression import (
    DTYPE_BYTES,
    Axis,
    DType,
    Read,
    Scalar,
    Select,
    Var,
    reads,
    walk,
)


@dataclass(frozen=True, slots=True)
class VectorLoad:
    """One read of a body, as a block of its own."""

    name: str  # of the block and its buffer
    axes: tuple[Axis, ...]  # those of the nest that the read moves along, in the nest's order
    source: Read

    @property
    def value(self) -> Read:
        """What is read instead."""
        return Read(self.name, tuple(Var(axis.name) for axis in self.axes))

    def words(self, itemsize: int, register: Sequence[Axis]) -> int:
        """32-bit registers of a thread, for all its vectors at once; `register`: the
        axes within a thread."""
        return -(-prod(axis.extent for axis in self.axes if axis in register) * itemsize // 4)


def vector_loads(
    name: str, body: Scalar, axes: Sequence[Axis], lane: Axis, dtypes: Mapping[str, DType]
) -> dict[Read, VectorLoad]:
    """The reads of a body, which is in the nest's iterators, that are of neighbours
    from lane to lane and never skipped.

    Whether each begins at a multiple of its length is for the code generator to see;
    one that does not is loaded by elements.
    """
    conditional = {read for node in walk(body) if isinstance(node, Select) for read in reads(node)}
    found: dict[Read, VectorLoad] = {}
    for read in dict.fromkeys(reads(body)):
        dtype = dtypes.get(read.tensor)
        if (
            dtype is None
            or dtype == "bool"
            or lane.extent * DTYPE_BYTES[dtype] > VECTOR_BYTES
            or read in conditional
        ):
            continue
        inside = [node for index in read.indices for node in walk(index)]
        moves = [linear(index)[0].get(Var(lane.name), 0) for index in read.indices]
        if (
            moves[-1:] == [1]
            and not any(moves[:-1])
            and not any(isinstance(node, Read) for node in inside)
        ):
            names = {node.name for node in inside if isinstance(node, Var)}
            own = tuple(axis for axis in axes if axis.name in names)
            found[read] = VectorLoad(f"{name}_in{len(found)}", own, read)
    return found
