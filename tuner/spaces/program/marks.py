"""Marks on loops: how the code generator is to treat a loop, or which instruction is to
replace it with the loops below it.

TVM does the first four itself. The others become annotations, which the passes in
`tuner.lowering.passes` replace by instructions after scheduling. Those say how many
loops stand below the marked one; the lowering refuses a mark on another loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tuner.spaces.program.loops import LoopId


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A mark on one loop."""

    label: ClassVar[str]  # as listings of loops show it
    loops_below: ClassVar[int | None] = None  # loops inside the marked one; None: any number

    loop: LoopId

    @property
    def loops(self) -> tuple[LoopId, ...]:
        """The marked loops, outermost first."""
        return (self.loop,)


class Parallel(Mark):
    """Iterations run on the threads of the pool."""

    __slots__ = ()
    label = "parallel"


class Vectorize(Mark):
    """Iterations become the lanes of a vector."""

    __slots__ = ()
    label = "vectorize"


class Unroll(Mark):
    """Iterations are written out one after another."""

    __slots__ = ()
    label = "unroll"


class NoUnroll(Mark):
    """The compiler must not unroll the loop."""

    __slots__ = ()
    label = "roll"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareByPlaces(Mark):
    """A parallel loop over compressed rows is shared among threads by places, not by rows.

    It becomes `tasks` iterations, each with rows that have about as many places.
    """

    label = "share_by_places"

    tasks: int


class Reassociate(Mark):
    """The compiler may add the loop's terms in any order, and so make vectors of them.

    Only for programs of plain arithmetic: it is free to do so wherever they add, and the
    steps of a polynomial must not be reordered.
    """

    __slots__ = ()
    label = "reassociate"


class LoadElements(Mark):
    """Elements that indices name are loaded one by one, and not gathered by an instruction."""

    __slots__ = ()
    label = "load_elements"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransposeInRegisters(Mark):
    """A plain copy is transposed in registers, rectangle by rectangle.

    Stands on the outer of the two innermost loops. Reads are contiguous along that
    loop, in vectors of `vector_lanes`; writes are contiguous along the inner one.
    """

    label = "transpose"
    loops_below = 1

    vector_lanes: int  # a power of two, at most the loop's extent

    def __post_init__(self) -> None:
        if self.vector_lanes < 1 or self.vector_lanes & (self.vector_lanes - 1):
            raise ValueError(f"vectors of {self.vector_lanes} lanes: no power of two")


class TransposeWordsInRegisters(TransposeInRegisters):
    """As `TransposeInRegisters`, of words of 16 or 32 bits that hold several elements.

    Stands on the outermost of the three innermost loops; the innermost one goes over
    the elements of a word.
    """

    __slots__ = ()
    label = "transpose_words"
    loops_below = 2


class Interleave(Mark):
    """Two, four or eight rows are stored with their elements alternating, for dot products.

    Stands on the outer of the two innermost loops of a copy. Reads are contiguous along
    that loop; the inner one goes over the elements of a group, which lie side by side.
    """

    __slots__ = ()
    label = "interleave"
    loops_below = 1


class DotProduct(Mark):
    """A sum of products of dp2 or dp4 groups becomes one instruction.

    Stands on the outer of the two innermost loops: the vector lanes of the accumulator.
    The inner one goes over the elements of a group.
    """

    __slots__ = ()
    label = "dot"
    loops_below = 1


class MatrixProduct(Mark):
    """The products of two small matrices, each a vector, are added to a third one.

    Stands on the outermost of the three innermost loops: the rows of the accumulators.
    The inner ones go over their columns, which are the rows of the second factor, and over
    the elements of a row of both factors.
    """

    __slots__ = ()
    label = "multiply_matrices"
    loops_below = 2


class HalfByteProduct(Mark):
    """A sum of products of 8-bit integers with four bits of the bytes of a word.

    Stands on the outermost of the three innermost loops: the vector lanes of the
    accumulator. The inner ones go over the halves of a byte, the low one first, and the
    bytes of a word.
    """

    __slots__ = ()
    label = "dot_halves"
    loops_below = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLookup(Mark):
    """Four bits of a word choose one of sixteen factors of a product that is summed.

    Stands on the outermost of the three innermost loops: the vector lanes of the
    accumulator. The inner ones go over the bytes of a word, and the halves of a byte,
    the low one first.
    """

    label = "look_up"
    loops_below = 2

    table: tuple[float, ...]  # of float32

    def __post_init__(self) -> None:
        if len(self.table) != 16:
            raise ValueError(f"a table of {len(self.table)} numbers, which four bits do not choose")


@dataclass(frozen=True, slots=True, kw_only=True)
class AmxTile(Mark):
    """A sum of products is computed in AMX's tile registers.

    `loop` is the outermost one over the reduction. The five others are the innermost
    loops, which the instructions replace.
    """

    label = "amx"

    rows: LoopId  # rows of the accumulators
    vectors: LoopId  # accumulators side by side
    vector_lanes: LoopId  # columns of one accumulator
    words: LoopId  # words of 32 bits of one step
    elements: LoopId  # elements of a word

    def __post_init__(self) -> None:
        if {loop.block for loop in self.loops} != {self.loop.block}:
            raise ValueError(f"loops of several blocks: {self.loops}")

    @property
    def loops(self) -> tuple[LoopId, ...]:
        return (
            self.loop,
            self.rows,
            self.vectors,
            self.vector_lanes,
            self.words,
            self.elements,
        )


class AmxParts(Mark):
    """The loop of an AMX reduction over the products of two numbers' parts.

    See `tuner.spaces.rewrite.bf16x3`.
    """

    __slots__ = ()
    label = "amx_parts"


class GuardedCopy(Mark):
    """Sixteen bytes are copied to shared memory, or zeros in their place.

    Stands on the innermost loop. The condition must not change along it.
    """

    __slots__ = ()
    label = "guarded_copy"
