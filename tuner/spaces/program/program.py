"""The loop-nest IR: blocks over buffers, and the schedule primitives to apply to them.

Pure data, made by sketches. Tiles, packing, padding and vector lanes are written into
the axes and indices of blocks. Nesting, placement, vectorisation, unrolling and threads
are primitives. `tuner.lowering` turns blocks into a TVM module and steps into its trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tuner.spaces.program.instructions import TensorInstruction
from tuner.spaces.program.loop_tree import LoopTree
from tuner.spaces.program.loops import LoopId
from tuner.spaces.program.marks import Mark
from tuner.spaces.program.persistent import PersistentProduct
from tuner.workload.dtypes import DType
from tuner.workload.expression import Axis, Read, Reducer, Scalar, Tensor, reads

MathFunctions = Literal["libm", "polynomial"]
ThreadAxis = Literal["blockIdx.x", "threadIdx.x", "threadIdx.y", "threadIdx.z"]
# Largest stride, in elements, of a vector load that is made of contiguous loads and
# shuffles: tuner.lowering.passes.strided_loads.
LARGEST_SHUFFLED_STRIDE = 4
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
    """An intermediate.

    `stack` buffers of a CPU and `local` buffers of a GPU are meant for registers: after
    unrolling, their indices must be constant. `shared` and `shared.dyn` buffers belong
    to a GPU's thread block; the latter are allocated at launch and may be larger.
    `wmma` buffers are operands and accumulators of tensor cores. Their elements are
    spread over the threads of a warp, accumulators of a warpgroup over four warps.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    scope: Scope = "global"
    # stored as bits of its dtype even where the compiler would widen it, because an
    # instruction reads them
    raw_bits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefetch:
    """A software prefetch of the cache line that an element lies in.

    The indices name no vector lane, so that each vector is prefetched once.
    """

    read: Read
    when: tuple[Scalar, ...] = ()  # conditions under which the line is prefetched


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A nest of loops around one statement: `buffer[indices] reducer= body`.

    Overlapping tiles write an element more than once, with the same value.
    """

    name: str
    axes: tuple[Axis, ...]
    reduce_axes: tuple[Axis, ...] = ()
    buffer: str
    indices: tuple[Scalar, ...]
    body: Scalar
    reducer: Reducer | None = None
    # Blocks of one section are scheduled together. They may rely on everything that
    # another section writes being complete.
    section: str = ""
    math_functions: MathFunctions = "libm"
    # conditions under which the body is computed; terms of a reduction that fail them
    # must not change its result
    when: tuple[Scalar, ...] = ()
    otherwise: Scalar | None = None  # stored where a condition fails; None stores nothing
    prefetches: tuple[Prefetch, ...] = ()  # done at each point, before the statement
    non_temporal: bool = False  # aligned whole vectors are stored past the caches

    @property
    def extents(self) -> dict[str, int]:
        """Extents of all axes by name, those of the reduction last."""
        return {axis.name: axis.extent for axis in (*self.axes, *self.reduce_axes)}

    @property
    def sources(self) -> tuple[Read, ...]:
        """What its value reads."""
        return tuple(reads(self.body))

    @property
    def written(self) -> frozenset[str]:
        """The name of the buffer that it writes."""
        return frozenset({self.buffer})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reorder:
    """Nests the loops of one block in the given order, outermost first."""

    loops: tuple[LoopId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeAt:
    """Moves a producer under a loop of its consumer; its own loops keep their names."""

    block: str
    loop: LoopId
    first: bool = False  # at the beginning of the loop, not right before its first consumer


@dataclass(frozen=True, slots=True, kw_only=True)
class ReverseComputeAt:
    """Moves a consumer under a loop of its producer; its own loops keep their names."""

    block: str
    loop: LoopId


@dataclass(frozen=True, slots=True, kw_only=True)
class DecomposeReduction:
    """Splits the initialisation of a reduction off, above a loop.

    Its loops are the block's `initial` ones: see `LoopId`.
    """

    block: str
    loop: LoopId


@dataclass(frozen=True, slots=True, kw_only=True)
class Fuse:
    """Makes one loop of several that are directly nested."""

    loops: tuple[LoopId, ...]
    into: LoopId


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitLoop:
    """Splits a loop into several, outermost first.

    The outermost loop's extent is what remains, rounded up; a predicate guards the rest.
    """

    loop: LoopId
    factors: tuple[int, ...]  # extents of all loops but the outermost
    into: tuple[LoopId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """Binds a loop to the blocks of a GPU's grid or to the threads of a block."""

    loop: LoopId
    axis: ThreadAxis


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageAlign:
    """Pads a dimension of the buffer that a block writes.

    Its stride becomes a multiple of `factor` elements plus `offset`.
    """

    block: str
    dimension: int
    factor: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageInRegisters:
    """Splits a copy to shared memory in two: into registers, and from there.

    A pipeline can then compute between a thread's loads and its stores.
    """

    block: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensorize:
    """Replaces a loop and all below it by an instruction of tensor cores.

    The loops must compute the same, element by element.
    """

    loop: LoopId
    instruction: TensorInstruction


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Software-pipelines a loop: copies overlap the computing on earlier ones.

    The first `copies` parts of the loop's body run `stages - 1` iterations early.
    """

    loop: LoopId
    copies: int
    asynchronous: bool  # copied without registers (cp.async), on architectures that can
    stages: int = 2  # copies of each operand in shared memory at once
    # each copy has two parts, see `StageInRegisters`; computing stands between them
    staged_in_registers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Specialize:
    """Makes two blocks, a sum of products and its store, one kernel of our own generator.

    Without that kernel the blocks are what they are: plain loops.
    """

    product: str
    store: str
    kernel: PersistentProduct


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
    | StageInRegisters
    | Tensorize
    | Pipeline
    | Specialize
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a sketch makes of an expression under one config."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    buffers: tuple[Buffer, ...]
    blocks: tuple[Block, ...]
    steps: tuple[Step, ...] = ()
    trees: tuple[LoopTree, ...] = ()  # sections of their own
    # names of the sections in the order in which they run; left out where there is no tree
    section_order: tuple[str, ...] = ()
    # inputs known before the first call; what is computed from them alone is done once:
    # tuner.spaces.program.prepacking
    constants: tuple[str, ...] = ()
    # shapes in which blocks address those inputs and outputs that callers pass in others
    views: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def sections(self) -> list[list[Block | LoopTree]]:
        """The blocks and trees of each section, in the order in which they run."""
        parts: dict[str, list[Block | LoopTree]] = {name: [] for name in self.section_order}
        every: tuple[Block | LoopTree, ...] = (*self.blocks, *self.trees)
        for part in every:
            parts.setdefault(part.section, []).append(part)
        return [section for section in parts.values() if section]

    @property
    def parts(self) -> tuple[Block | LoopTree, ...]:
        """All blocks and trees, in the order in which they run."""
        return tuple(part for section in self.sections for part in section)

    def addressed(self, tensor: Tensor) -> tuple[int, ...]:
        """The shape in which the blocks address an input or output: the same elements
        in the same order."""
        return self.views.get(tensor.name, tensor.shape)
