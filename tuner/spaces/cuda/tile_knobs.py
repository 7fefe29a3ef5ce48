"""Knobs of the tile sketch for GPUs: tiles and depth that fit a block together, how
operands are copied, the order of blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from tuner.spaces.core.choice import Choice, choice
from tuner.spaces.core.roles import KnobRole
from tuner.spaces.core.space import Config
from tuner.spaces.cuda.axes import DepthAxis, GridAxis
from tuner.spaces.cuda.block_shapes import AxisSplit, TileShape
from tuner.spaces.cuda.copy_mode import SharedCopy, stored_copy
from tuner.spaces.cuda.facts import ComputeUnit, KernelFacts
from tuner.spaces.cuda.limits import (
    LEAST_THREADS,
    OTHER_REGISTERS,
    Footprint,
    architecture_of,
    covers,
    widest,
)
from tuner.spaces.cuda.pipelining import UNPIPELINED, Pipelining, pipelinings
from tuner.spaces.cuda.shared_choices import (
    axis_order_choice,
    block_choice,
    pipelining_choice,
)
from tuner.spaces.cuda.shared_copies import (
    BoxSizes,
    has_known_box,
    spans,
    transposed_forms,
    transposition_differs,
)
from tuner.spaces.cuda.sketch import CudaSketch
from tuner.spaces.cuda.tile import CudaTileNest
from tuner.spaces.cuda.tile_plan import CudaTilePlan
from tuner.spaces.program.nest import Nest
from tuner.spaces.rewrite.access import Access, accesses
from tuner.spaces.rewrite.groups import TileGroup
from tuner.target.cuda import THREADS_PER_BLOCK, WARP
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import Axis

THREADS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # of one axis
VECTORS = (1, 2, 4, 8)  # of one thread along one axis
LANES = (1, 2, 4, 8, 16)  # elements of a vector
# Iterations of a reduction block, besides the whole extent where that is short.
DEPTHS = (1, 4, 8, 16, 32, 64)
UNROLLS = (1, 4, 8, 16)  # of them
WARP_ROWS = (4, 8)  # rows of threads that a warp covers: as near to a square as 32 threads get
MAX_ACCUMULATORS = 128  # of a thread
MAX_AXES = 3  # with threads
ASYNC_FROM = 80  # the architecture, as in sm_80, from which copies need no registers
SECTOR_BYTES = 32  # of memory, read and written whole
# Iterations of a further reduction axis that are in one block; a longer one is walked
# one by one.
MAX_WINDOW = 8


@dataclass(frozen=True)
class CudaTileSketch(CudaSketch[TileGroup]):
    """The tile sketch of one group; adjacent threads write along the output's last axis."""

    # whether axes that all operands of a product move with can have threads: nothing is
    # reused along them
    batches: bool = True

    name = "tile"

    # --- what the group is like

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        return self.group.anchor.axes or (Axis(name="unit", extent=1),)

    @cached_property
    def fastest(self) -> str:
        """The axis along which threads are adjacent: the output's last longer than 1."""
        long = [axis.name for axis in self.group.output.axes if axis.extent > 1]
        return long[-1] if long else self.axes[-1].name

    @cached_property
    def major(self) -> tuple[str, ...]:
        """The axes with threads: the longest, and the fastest last."""
        others = [axis for axis in self.axes if axis.name not in (self.fastest, *self._batch)]
        others.sort(key=lambda axis: -axis.extent)
        kept = [axis.name for axis in others if axis.extent > 1][: MAX_AXES - 1]
        return (*(axis.name for axis in self.axes if axis.name in kept), self.fastest)

    @cached_property
    def _batch(self) -> frozenset[str]:
        """Axes that have no threads because all operands of a product move with them."""
        operands = accesses(self.group.anchor, self.context.shapes)
        if self.batches or len(operands) < 2 or not self._reduces:
            return frozenset()
        return frozenset.intersection(*(operand.axes for operand in operands))

    @property
    def _reduces(self) -> bool:
        return self.group.anchor.reducer is not None

    @cached_property
    def _reduced(self) -> set[str]:
        return {axis.name for axis in self.group.anchor.reduce_axes}

    @cached_property
    def candidates(self) -> tuple[Access, ...]:
        """Reads that pay in shared memory: several threads use them, or they are read
        across the order of writing."""
        operands = accesses(self.group.anchor, self.context.shapes)
        return tuple(
            operand
            for operand in operands
            if has_known_box(operand)
            and (self._is_reused(operand) or operand.stride(self.fastest) not in (0, 1))
        )

    def _is_reused(self, operand: Access) -> bool:
        return self._reduces and any(
            axis.name not in operand.axes or operand.stride(axis.name) is None
            for axis in self.axes
            if axis.extent > 1
        )

    @cached_property
    def lanes(self) -> int:
        """Elements of a store: 1 where rows of the output do not begin at multiples of more."""
        output = self.group.output
        extent = self._extent(self.fastest)
        if not output.axes or output.axes[-1].name != self.fastest:
            return 1
        lanes = widest(DTYPE_BYTES[output.dtype])
        while extent % lanes:
            lanes //= 2
        return lanes

    def _extent(self, name: str) -> int:
        return next(axis.extent for axis in self.axes if axis.name == name)

    def _itemsize(self, operand: Access) -> int:
        return DTYPE_BYTES[self.context.dtypes[operand.read.tensor]]

    @cached_property
    def _main(self) -> Axis | None:
        """The longest reduction axis, whose blocks are loaded one after another."""
        return max(self.group.anchor.reduce_axes, key=lambda axis: axis.extent, default=None)

    # --- choices

    @cached_property
    def choices(self) -> tuple[Choice[Any], ...]:
        return (
            self.block,
            self.unroll,
            self.warp_rows,
            self.pipelining,
            *self.copies,
            self.order,
        )

    @cached_property
    def block(self) -> Choice[TileShape]:
        """The tiles that fit a block with all operands."""
        return block_choice(self.prefix, self._fitting)

    @cached_property
    def unroll(self) -> Choice[int]:
        """Iterations of the longest reduction axis that are unrolled."""
        return choice(self.prefix, KnobRole.UNROLL, UNROLLS if self._reduces else (1,), int)

    @cached_property
    def warp_rows(self) -> Choice[int]:
        """Rows of threads that a warp covers; 0 where threads are numbered row by row."""
        shared = self._reduces and self.candidates
        offered = [
            rows
            for rows in (WARP_ROWS if shared else ())
            if any(self._filled_by_warps(shape, rows) for shape in self.block.values)
        ]
        return choice(self.prefix, KnobRole.WARP_SHAPE, (0, *offered), int)

    def _filled_by_warps(self, shape: TileShape, rows: int) -> bool:
        """Whether warps of so many rows of threads fill a block of the shape."""
        *_, down, along = (1, *(split.threads for split in shape.axes))
        return rows > 0 and down % rows == 0 and along % (WARP // rows) == 0

    @cached_property
    def pipelining(self) -> Choice[Pipelining]:
        offered = (
            pipelinings(asynchronous=architecture_of(self.context.target) >= ASYNC_FROM)
            if self._reduces and self.candidates
            else (UNPIPELINED,)
        )
        return pipelining_choice(self.prefix, offered)

    @cached_property
    def copies(self) -> tuple[Choice[SharedCopy | None], ...]:
        """How each of `candidates` is read."""
        return tuple(
            choice(
                self.prefix,
                KnobRole.SHARED_COPY,
                self._copy_modes(operand),
                stored_copy,
                subject=f"{number}_{operand.read.tensor}",
            )
            for number, operand in enumerate(self.candidates)
        )

    def _copy_modes(self, operand: Access) -> Iterator[SharedCopy | None]:
        yield None
        wide = 1 if operand.padded else widest(self._itemsize(operand))
        differs = self._reduces and transposition_differs(operand.read, self._reduced)
        transposed = (False, True) if differs else (False,)
        padded = (False, True) if len(operand.read.indices) > 1 else (False,)
        for width, across, stretched in product(dict.fromkeys((1, wide)), transposed, padded):
            yield SharedCopy(width=width, transposed=across, padded=stretched)

    @cached_property
    def order(self) -> Choice[tuple[str, ...]]:
        return axis_order_choice(self.prefix, [axis.name for axis in self.axes], self.major)

    # --- tiles

    @cached_property
    def _fitting(self) -> tuple[TileShape, ...]:
        """Tiles that fit a block, without those that leave schedulers idle."""
        fitting = list(self._footprints)
        least = min(LEAST_THREADS, max(shape.threads for shape in fitting))
        return tuple(shape for shape in fitting if shape.threads >= least)

    @cached_property
    def _footprints(self) -> dict[TileShape, Footprint]:
        """Of every tile that fits a block."""
        footprints = {shape: self.footprint(shape) for shape in self._shapes()}
        return {shape: block for shape, block in footprints.items() if block.fault is None}

    def _shapes(self) -> Iterator[TileShape]:
        depths = self._depths()
        for axes in product(*map(self._splits, self.major)):
            shape = TileShape(axes=axes, depth=None)
            if shape.accumulators > MAX_ACCUMULATORS or shape.threads > THREADS_PER_BLOCK:
                continue
            for depth in depths:
                yield TileShape(axes=axes, depth=depth)

    def _splits(self, name: str) -> list[AxisSplit]:
        """How an axis may be split; along the fastest one, adjacent threads fill at least
        one sector."""
        extent = self._extent(name)
        whole = (extent,) if 1 < extent <= WARP and extent not in THREADS else ()
        if name == self.fastest:
            widths = [lanes for lanes in LANES if lanes <= self.lanes]
        else:
            widths = [1, self._operand_lanes] if name in self._read_along else [1]
        splits = [
            AxisSplit(threads=threads, vectors=vectors, lanes=lanes)
            for threads, vectors, lanes in product((*THREADS, *whole), VECTORS, widths)
        ]
        covering = [split for split in splits if covers(extent, split.block)]
        sector = SECTOR_BYTES // DTYPE_BYTES[self.group.output.dtype] if name == self.fastest else 1
        filling = [split for split in covering if split.threads * split.lanes >= sector]
        return filling or covering

    @cached_property
    def _operand_lanes(self) -> int:
        return widest(max(map(self._itemsize, self.candidates)))

    @cached_property
    def _read_along(self) -> frozenset[str]:
        """Axes other than the fastest along which a transposed operand lies: a thread
        then reads several adjacent elements at once."""
        axes: set[str] = set()
        for operand in self.candidates if self._reduced else ():
            last = transposed_forms(operand.read, self._reduced)[-1]
            if len(last.coefficients) == 1:
                axes |= {axis for axis, factor in last.coefficients.items() if factor == 1}
        return frozenset(axes)

    def _depths(self) -> tuple[int | None, ...]:
        main = self._main
        if main is None:
            return (None,)
        whole = (main.extent,) if main.extent <= DEPTHS[-1] else ()
        parts = [depth for depth in DEPTHS if depth < main.extent and covers(main.extent, depth)]
        return tuple(sorted({*parts, *whole})) or (1,)

    def footprint(self, shape: TileShape) -> Footprint:
        """What a block of this tile takes with every operand that could be shared shared.

        A reduction's copies are counted as running ahead of the computing, both ways:
        in two boxes, and through registers.
        """
        stage, main = self.group.anchor, self._main
        extents = self._extents(shape)
        lanes = max(split.lanes for split in shape.axes)
        boxes = [box.sizes(extents, lanes) for box in self._boxes]
        overlaps = main is not None and extents[main.name] < main.extent
        words = -(-DTYPE_BYTES[stage.accumulator if stage.reducer else stage.dtype] // 4)
        rows = sum(split.held for split in shape.axes) + len(self.axes) - len(shape.axes)
        elements = shape.accumulators + (rows if self._reduces else 0)
        staged = sum(-(-size // (4 * shape.threads)) for size, _ in boxes) if overlaps else 0
        shared = sum(stretched for _, stretched in boxes)
        return Footprint(
            threads=tuple(split.threads for split in reversed(shape.axes)),
            registers=elements * words + staged + OTHER_REGISTERS,
            shared_bytes=shared * (2 if overlaps else 1),
        )

    @cached_property
    def _boxes(self) -> tuple[BoxSizes, ...]:
        """Of what blocks read of each of `candidates`."""
        return tuple(BoxSizes(operand.read, self._itemsize(operand)) for operand in self.candidates)

    def _extents(self, shape: TileShape) -> dict[str, int]:
        """Points of each iterator within a block of this tile."""
        extents = dict(self._undivided)
        for name, split in zip(self.major, shape.axes, strict=True):
            extents[name] = split.block
        if self._main is not None and shape.depth is not None:
            extents[self._main.name] = shape.depth
        return extents

    @cached_property
    def _undivided(self) -> dict[str, int]:
        """Points of each iterator within a block that no tile divides."""
        return spans(*self._parts(TileShape(axes=(AxisSplit(),) * len(self.major), depth=None), 1))

    # --- meaning

    @cached_property
    def facts(self) -> KernelFacts:
        return KernelFacts(
            owner=self.prefix,
            group=self.group.name,
            unit=ComputeUnit.CUDA_CORES,
            block=self.block,
            footprints=tuple(self._footprints[shape] for shape in self.block.values),
            copies=self.copies,
            pipelining=self.pipelining,
        )

    def nest(self, config: Config) -> Nest:
        return CudaTileNest(self.group, self.plan(config), self.context).build()

    def plan(self, config: Config) -> CudaTilePlan:
        """The config decoded."""
        shape = self.block.of(config)
        spatial, reduction = self._parts(shape, self.unroll.of(config))
        rows = self.warp_rows.of(config)
        chosen = zip(self.candidates, self.copies, strict=True)
        modes = [(operand.read, copy.of(config)) for operand, copy in chosen]
        return CudaTilePlan(
            spatial=spatial,
            threads=self.major,
            grid=self.order.of(config),
            reduction=reduction,
            copies={read: mode for read, mode in modes if mode is not None},
            warp_rows=rows if self._filled_by_warps(shape, rows) else 0,
            pipelining=self.pipelining.of(config),
        )

    def _parts(
        self, shape: TileShape, unroll: int
    ) -> tuple[tuple[GridAxis, ...], tuple[DepthAxis, ...]]:
        """The nest's spatial and reduction axes, these in loop order."""
        splits = dict(zip(self.major, shape.axes, strict=True))
        whole = AxisSplit()
        spatial = tuple(
            GridAxis(axis=axis, threads=split.threads, vectors=split.vectors, lanes=split.lanes)
            for axis in self.axes
            for split in (splits.get(axis.name, whole),)
        )
        main = self._main
        # The longest axis last: its blocks are loaded one after another, its iterations unrolled.
        ordered = sorted(self.group.anchor.reduce_axes, key=lambda axis: axis == main)
        return spatial, tuple(
            self._depth_axis(axis, shape.depth if axis == main else None, unroll)
            for axis in ordered
        )

    def _depth_axis(self, axis: Axis, depth: int | None, unroll: int) -> DepthAxis:
        """A reduction axis; `depth`: of the longest one."""
        if depth is None:
            return DepthAxis(axis=axis, depth=axis.extent if axis.extent <= MAX_WINDOW else 1)
        return DepthAxis(axis=axis, depth=depth, unroll=unroll if depth % unroll == 0 else 1)
