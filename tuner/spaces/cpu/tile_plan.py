"""A config of the tile sketch for CPUs, decoded: which loops there are at each level of
the nest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.spaces.cpu.copy_mode import CopyMode
from tuner.spaces.program.loops import Level
from tuner.spaces.program.program import MathFunctions
from tuner.spaces.program.tiles import TiledAxis, add, constant, times
from tuner.spaces.rewrite.bf16x3 import FactorParts
from tuner.workload.dtypes import DType
from tuner.workload.expression import Axis, Read, Scalar, Var


@dataclass(frozen=True, slots=True, kw_only=True)
class ReductionAxis:
    """A reduction axis as blocks of steps of unrolled iterations; the factors divide exactly."""

    axis: Axis
    block: int  # iterations of one reduction block; the extent where there is one block
    unroll: int = 1  # divides `block`

    @property
    def outer(self) -> Axis:
        return Level.BLOCK.axis(self.axis.name, self.axis.extent // self.block)

    @property
    def inner(self) -> Axis:
        return Level.TILE.axis(self.axis.name, self.block // self.unroll)

    @property
    def unrolled(self) -> Axis:
        return Level.REGISTER.axis(self.axis.name, self.unroll)

    @property
    def blocked(self) -> bool:
        return self.block < self.axis.extent

    @property
    def within(self) -> Scalar:
        """The iteration within the current block."""
        return add(
            times(Var(self.inner.name), self.unroll),
            Var(self.unrolled.name) if self.unroll > 1 else constant(0),
        )

    @property
    def index(self) -> Scalar:
        return (
            add(times(Var(self.outer.name), self.block), self.within)
            if self.blocked
            else self.within
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """What multiplies and adds in a tile's body, where that is no plain vector."""

    # Whether the compiler makes vectors along the reduction, of sums whose terms it may
    # add in any order: tuner.spaces.cpu.ragged.
    reassociated: bool = False
    # Whether what indices name is loaded one by one, where a gather instruction could load it.
    loads_elements: bool = False
    # Reduction axes that it takes as a whole: tuner.spaces.cpu.dots, tuner.spaces.cpu.amx.
    axes: tuple[str, ...] = ()
    register_rows: str | None = None  # the axis along which AMX's registers have their rows
    # The axis of which each vector of sums holds two elements: tuner.spaces.cpu.mmla.
    paired: str | None = None
    # Products of bfloat16 parts, whose registers share what they load.
    factor_parts: FactorParts | None = None
    # The factor whose numbers are put beside each other in registers, lane by lane, where no
    # copy has them so: tuner.spaces.cpu.dots.
    interleaved: Read | None = None
    # The dtype of packed copies, where it is not that of what they are copied from.
    packed_dtype: DType | None = None
    # Added to the factor that the vector's lanes share, so that the instruction takes it.
    zero_point: int = 0
    # Sixteen numbers, of which four bits of a packed operand choose: tuner.spaces.cpu.quantized.
    table: tuple[float, ...] = ()
    # The reduction axis whose iterations each scale the sum of the others.
    groups: str | None = None
    # The dtype of those sums, where it is not the accumulator's.
    group_dtype: DType | None = None

    @property
    def takes_halves(self) -> bool:
        """Whether it sums products with halves of bytes: the last axes are these and bytes."""
        return self.group_dtype is not None and len(self.axes) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TilePlan:
    """A config of the sketch, decoded."""

    spatial: tuple[TiledAxis, ...]  # in the order of the stage's axes
    vector: str | None  # the vectorised axis
    reduction: tuple[ReductionAxis, ...]  # in loop order, the innermost last
    outer_order: tuple[str, ...]  # spatial axes, cache-block loops, outermost first
    inner_order: tuple[str, ...]  # spatial axes, register-tile loops within a cache block
    copies: Mapping[Read, CopyMode]
    math_functions: MathFunctions
    threads: int
    line_bytes: int = 64  # of a cache line, by which a sum prefetches
    # How far ahead the nest prefetches: bytes of a map; of a sum, gathered rows, or blocks of
    # the reduction and packed parts, one at most.
    prefetch: int = 0
    far: frozenset[str] = frozenset()  # tensors whose gathered rows are prefetched
    non_temporal: bool = False  # whether the output is stored past the caches
    instruction: Instruction = field(default_factory=Instruction)

    @property
    def blocked(self) -> ReductionAxis | None:
        """The reduction axis that is cut into blocks, if one is."""
        return next((axis for axis in self.reduction if axis.blocked), None)

    def tiled(self, name: str) -> TiledAxis:
        return next(axis for axis in self.spatial if axis.axis.name == name)
