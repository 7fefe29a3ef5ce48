"""Loads of vectors for a body that is computed lane by lane.

Mathematical functions have no vectors on a GPU, and a lane that is computed by itself is
loaded and stored by itself, too: a quarter of each transaction is used, as adjacent
threads lie a vector apart. So memory is read and written in vectors from and to
registers, and the lanes are computed between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tuner.target.cuda import VECTOR_BYTES
from tuner.workload.affine import affine
from tuner.workload.dtypes import DTYPE_BYTES, DType
from tuner.workload.expression import Axis, Read, Scalar, Select, Var, reads, walk


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

    def registers(self, itemsize: int, thread_axes: Sequence[Axis]) -> int:
        """32-bit registers of a thread, for all its vectors at once.

        `thread_axes`: the loops within a thread.
        """
        elements = prod(axis.extent for axis in self.axes if axis in thread_axes)
        return -(-elements * itemsize // 4)


def vector_loads(
    name: str, body: Scalar, axes: Sequence[Axis], lane: Axis, dtypes: Mapping[str, DType]
) -> dict[Read, VectorLoad]:
    """The reads of a body that move by one element from lane to lane and are never skipped.

    The body is in the nest's iterators. Whether each load begins at a multiple of its
    length is for the code generator to see; one that does not is loaded by elements.
    """
    conditional = {read for node in walk(body) if isinstance(node, Select) for read in reads(node)}
    loads: dict[Read, VectorLoad] = {}
    for read in dict.fromkeys(reads(body)):
        dtype = dtypes.get(read.tensor)
        if dtype is None or dtype == "bool" or read in conditional:
            continue
        if lane.extent * DTYPE_BYTES[dtype] <= VECTOR_BYTES and _moves_by_one(read, lane):
            nodes = [node for index in read.indices for node in walk(index)]
            names = {node.name for node in nodes if isinstance(node, Var)}
            own_axes = tuple(axis for axis in axes if axis.name in names)
            loads[read] = VectorLoad(f"{name}_in{len(loads)}", own_axes, read)
    return loads


def _moves_by_one(read: Read, lane: Axis) -> bool:
    """Whether the read is of the next element at the next lane, at an index that is
    itself read from no tensor."""
    factors = [affine(index).coefficient(lane.name) for index in read.indices]
    gathered = any(isinstance(node, Read) for index in read.indices for node in walk(index))
    return factors[-1:] == [1] and not any(factors[:-1]) and not gathered
