"""What a GPU sketch says of its kernels: all that the cost model knows of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from tuner.spaces.core.choice import Choice
from tuner.spaces.cuda.block_shapes import (
    FragmentTile,
    PatchShape,
    RowShape,
    TileShape,
    WarpgroupTile,
)
from tuner.spaces.cuda.copy_mode import SharedCopy
from tuner.spaces.cuda.limits import Footprint
from tuner.spaces.cuda.pipelining import Pipelining
from tuner.spaces.program.persistent import PersistentTile

BlockChoice = (
    Choice[TileShape]
    | Choice[RowShape]
    | Choice[FragmentTile]
    | Choice[WarpgroupTile]
    | Choice[PatchShape]
    | Choice[PersistentTile]
)


class ComputeUnit(Enum):
    """What multiplies in a kernel."""

    CUDA_CORES = auto()
    TENSOR_CORES = auto()  # a warp at a time (WMMA)
    WARPGROUPS = auto()  # tensor cores, four warps at a time (WGMMA)
    SPECIALIZED_WARPGROUPS = auto()  # the same, fed by warps that only copy


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFacts:
    """The kernels of one sketch of one group, as far as their time depends on it."""

    owner: str  # "<group>.<sketch>", unique in a space
    group: str
    unit: ComputeUnit
    block: BlockChoice
    footprints: tuple[Footprint, ...]  # of a block, one for each value of `block`
    copies: tuple[Choice[SharedCopy | None], ...] = ()  # of each operand that may be shared
    pipelining: Choice[Pipelining] | None = None
    padded_rows: Choice[bool] | None = None  # rows of both operands' boxes
