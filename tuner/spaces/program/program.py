"""What a sketch makes of an expression: rewritten blocks over buffers, and the ordered
list of primitives to apply on them.

Pure data. The rewriting (tiles, packing, padding, lanes) is in the blocks' axes and
indices; nesting, placement, vectorisation, unrolling and threads are primitives.
`tuner.lowering` turns blocks into a TVM module and steps into a trace on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tuner.workload.expression import Axis, DType, Read, Reducer, Scalar, Tensor

Mathematics = Literal["libm", "polynomial"]
ThreadAxis = Literal["blockIdx.x", "threadIdx.x", "threadIdx.y", "threadIdx.z"]
# elements: vectors of elements at most so far apart are made of whole loads and
# shuffles, by `tuner.lowering.passes.strides`
NEAR = 4
Scope = Literal[
    "global",
    "stack",
    "local",
    "shared",
    "shared.dyn",
    "wmma.matrix_a",
    "wmma.matrix_b",
    "wmma.accumulator",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """An intermediate. `stack` buffers of a CPU and `local` ones of a GPU are meant for
    registers: their accesses must become constant after unrolling.

    `shared` ones are those of a GPU's thread block, `shared.dyn` ones too, which are
    asked for at the launch and may be larger; `wmma` ones the operands and sums of
    tensor cores, spread over a warp, sums of warpgroups over four.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    scope: Scope = "global"
    # kept in its dtype's own bits, where the compiler would widen it: an instruction
    # reads it
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """A line of memory asked for before it is needed; of a vector once, since its
    indices name no lane."""

    read: Read
    when: tuple[Scalar, ...] = ()  # conditions under which it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """`buffer[indices] reducer= body` for all axes. Overlapping tiles write a point
    more than once, with the same value."""

    name: str
    axes: tuple[Axis, ...]
    reduce_axes: tuple[Axis, ...] = ()
    buffer: str
    indices: tuple[Scalar, ...]
    body: Scalar
    reducer: Reducer | None = None
    # blocks of one section are scheduled together; what another section wrote is
    # complete for them
    section: str = ""
    mathematics: Mathematics = "libm"
    when: tuple[
        Scalar, ...
        # conditions under which the body is computed; of a reduction, terms elsewhere
        # change nothing
    ] = ()
    otherwise: Scalar | None = None  # what is written where one of them fails; None for nothing
    ahead: tuple[Fetch, ...] = ()  # into the caches, with each point
    streamed: bool = (
        False  # whether whole vectors are written past the caches, where they lie as such
    )

    @property
    def extents(self) -> dict[str, int]:
        """Of all axes by name, those of the reduction last."""
        return {axis.name: axis.extent for axis in (*self.axes, *self.reduce_axes)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reorder:
    """Nests the loops in the given order, outermost first; loops are named `<block>.<axis>`."""

    loops: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeAt:
    """Moves a producer under a loop of its consumer; its own loops keep their names."""

    block: str
    loop: str
    first: bool = False  # before all else in the loop, instead of right before its first consumer


@dataclass(frozen=True, slots=True, kw_only=True)
class ReverseComputeAt:
    """Moves a consumer under a loop of its producer; its own loops keep their names."""

    block: str
    loop: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DecomposeReduction:
    """Splits the initialisation off above a loop, as block `<block>_init` with loops
    `<block>_init.<axis>`."""

    block: str
    loop: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fuse:
    loops: tuple[str, ...]
    into: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Annotates one loop.

    `transpose` stands on the outer of the two innermost loops of a plain copy: what is
    read is contiguous along that loop, in vectors of `lanes`, what is written along the
    inner one; rectangles are transposed in registers. `transpose_words` stands on the
    outer of three, the innermost of which goes over the numbers of a word of 16 or 32
    bits: rectangles of words.

    `interleave` stands on the outer of the two innermost loops of a copy to pairs, or
    fours: what is read is contiguous along that loop, the inner one goes over the
    numbers of one, and they lie one after another. `dot` stands on the outer of the two
    innermost loops of a sum of products of such pairs, or fours, the lanes of its
    accumulators.

    `amx` stands on the outermost loop of a reduction that AMX's registers do, and on
    the five below it that they replace: rows and vectors of sums, lanes, words of a
    step, numbers of a word. `amx_parts` stands on the loop of that reduction that goes
    over the products of two numbers' parts (tuner.spaces.rewrite.bf16x3).

    `guarded_copy` stands on the innermost loop of a copy of 16 bytes to shared memory
    that are read, or zero, as a whole.

    `roll` stands on a loop that the compiler is not to unroll.
    """

    loop: str
    how: Literal[
        "parallel", "vectorize", "unroll", "roll", "transpose", "transpose_words", "interleave",
        "dot", "amx", "amx_parts",
        "guarded_copy",
    ]  # fmt: skip
    lanes: int = (
        0  # of `transpose` and `transpose_words`: a power of two, at most the loop's extent
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitLoop:
    """Splits a loop, outermost part first; the outermost one's extent is what is left,
    rounded up and guarded."""

    loop: str
    factors: tuple[int, ...]  # of all parts but the outermost
    into: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """Gives a loop to the blocks of a GPU's grid or to the threads of a block."""

    loop: str
    axis: ThreadAxis


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageAlign:
    """Stretches a dimension of the buffer a block writes: its stride becomes a multiple
    of `factor` elements plus `offset`."""

    block: str
    dimension: int
    factor: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Makes a copy to shared memory two parts: each thread loads its elements into
    registers, and stores them from there."""

    block: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensorize:
    """Puts an instruction of tensor cores in the place of a loop and all below it,
    which do the same one by one."""

    loop: str
    instruction: str  # the name of TVM's intrinsic


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Overlaps a loop's copies with the computing on those before: the first `copies`
    parts of its body run turns ahead."""

    loop: str
    copies: int
    asynchronous: bool  # without going through registers, on architectures that can
    stages: int = (
        2  # of what is copied, so many lie in memory at once: copies run one turn fewer ahead
    )
    held: bool = (
        False  # each copy has two parts, as `Hold` makes them, and what is computed comes between
    )


Step = (
    Reorder
    | ComputeAt
    | ReverseComputeAt
    | DecomposeReduction
    | Fuse
    | Mark
    | SplitLoop
    | Bind
    | StorageAlign
    | Hold
    | Tensorize
    | Pipeline
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    buffers: tuple[Buffer, ...]
    blocks: tuple[Block, ...]
    steps: tuple[Step, ...] = ()
    constants: tuple[
        str, ...
        # inputs known ahead of time: tuner.spaces.program.prepacking takes out what can be
        # done with them
    ] = ()
    # Shapes in which blocks address inputs and outputs, of those that callers have in others.
    views: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def addressed(self, tensor: Tensor) -> tuple[int, ...]:
        """The shape in which the blocks address an input or output: the same elements
        in the same order."""
        return self.views.get(tensor.name, tensor.shape)
