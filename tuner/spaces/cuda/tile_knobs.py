"""Knobs of the tile sketch for GPUs: tiles and depth that fit a block together, how
operands are fetched, the order of blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations, product
from math import prod

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.core.space import Knob, Value
from tuner.spaces.cuda.axes import DepthAxis, GridAxis
from tuner.spaces.cuda.facts import KernelFacts, KernelKind
from tuner.spaces.cuda.limits import (
    LEAST_THREADS,
    OTHER_REGISTERS,
    Footprint,
    architecture_of,
    widest,
)
from tuner.spaces.cuda.shared_copies import (
    box_bytes,
    box_shape,
    fetchable,
    turned_forms,
    turns_around,
)
from tuner.spaces.cuda.tile import CopyPlan, CudaTileNest, CudaTilePlan
from tuner.spaces.program.nest import Nest
from tuner.spaces.rewrite.access import Access, accesses
from tuner.spaces.rewrite.groups import TileGroup
from tuner.target.cuda import WARP
from tuner.workload.expression import DTYPE_BYTES, Axis, Read

THREADS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # of one axis
REGISTERS = (1, 2, 4, 8)  # vectors of one axis
DEPTHS = (
    1,
    4,
    8,
    16,
    32,
    64,
)  # iterations of a reduction block, and the whole extent where that is short
UNROLLS = (1, 4, 8, 16)  # of them
WARP_ROWS = (4, 8)  # rows of threads that a warp covers: as near to a square as 32 threads get
MAX_ACCUMULATORS = 128  # of a thread
MAX_OVERLAP = 0.25  # work done twice, as a share, where an extent does not divide
MAX_AXES = 3  # with threads
ASYNC_FROM = 80  # the architecture, as in sm_80, from which copies need no registers
SECTOR_BYTES = 32  # of memory, read and written whole
# iterations of a further reduction axis that are in one block; a longer one is walked
# one by one
MAX_WINDOW = 8


@dataclass(frozen=True)
class CudaTileSketch:
    """The tile sketch of one group; the output's last axis is along which neighbouring
    threads write."""

    group: TileGroup
    context: SpaceContext
    # whether axes that all operands of a product move with can have threads: nothing is
    # reused along them
    batches: bool = True

    name = "tile"

    @property
    def prefix(self) -> str:
        return f"{self.group.name}.{self.name}"

    # --- facts
    # ------------------------------------------------------------------------------

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        return self.group.anchor.axes or (Axis(name="unit", extent=1),)

    @cached_property
    def fastest(self) -> str:
        """The axis along which threads are neighbours: the output's last that has any length."""
        wide = [axis.name for axis in self.group.output.axes if axis.extent > 1]
        return wide[-1] if wide else self.axes[-1].name

    @cached_property
    def major(self) -> tuple[str, ...]:
        """The axes with threads, the fastest last: it, and the longest of the others."""
        others = [axis for axis in self.axes if axis.name not in (self.fastest, *self._batch)]
        others.sort(key=lambda axis: -axis.extent)
        kept = [axis.name for axis in others if axis.extent > 1][: MAX_AXES - 1]
        return (*(axis.name for axis in self.axes if axis.name in kept), self.fastest)

    @cached_property
    def _batch(self) -> frozenset[str]:
        operands = accesses(self.group.anchor, self.context.shapes)
        if self.batches or len(operands) < 2 or self.group.anchor.reducer is None:
            return frozenset()
        return frozenset.intersection(*(one.axes for one in operands))

    @cached_property
    def candidates(self) -> tuple[Access, ...]:
        """Reads that pay in shared memory: used by several threads, or not read in the
        order in which is written."""
        found = [one for one in accesses(self.group.anchor, self.context.shapes) if fetchable(one)]
        return tuple(
            one for one in found if self._reused(one) or one.stride(self.fastest) not in (0, 1)
        )

    def _reused(self, found: Access) -> bool:
        return self.group.anchor.reducer is not None and any(
            axis.name not in found.axes or found.stride(axis.name) is None
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
        wide = widest(DTYPE_BYTES[output.dtype])
        while extent % wide:
            wide //= 2
        return wide

    def _extent(self, name: str) -> int:
        return next(axis.extent for axis in self.axes if axis.name == name)

    @property
    def _main(self) -> Axis | None:
        return max(self.group.anchor.reduce_axes, key=lambda axis: axis.extent, default=None)

    # --- knobs
    # ------------------------------------------------------------------------------

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        knobs = [self._knob("tile", self.tile_values())]
        if self.group.anchor.reducer is not None:
            ways = (
                ("none", "registers", "async")
                if architecture_of(self.context.target) >= ASYNC_FROM
                else ("none", "registers")
            )
            knobs.append(self._knob("unroll", UNROLLS))
            knobs.append(self._knob("warp", (0, *self._warps()) if self.candidates else (0,)))
            knobs.append(self._knob("pipeline", ways if self.candidates else ("none",)))
        for number, found in enumerate(self.candidates):
            knobs.append(self._knob(f"fetch{number}_{found.read.tensor}", self._copy_values(found)))
        knobs.append(self._knob("order", tuple(permutations(range(len(self.major))))))
        return tuple(knob for knob in knobs if len(knob.values) > 1)

    def _knob(self, what: str, values: Iterable[Value]) -> Knob:
        return Knob(name=f"{self.prefix}.{what}", values=tuple(values))

    def _warps(self) -> list[int]:
        """Rows of threads that warps of at least one tile can cover."""
        return [
            rows for rows in WARP_ROWS if any(self._warp(tile, rows) for tile in self.tile_values())
        ]

    def _warp(self, tile: tuple[int, ...], rows: int) -> int:
        """`rows` where warps of so many rows of threads fill a block of the tile, else 0."""
        *_, down, along = (1, *tile[0 : 3 * len(self.major) : 3])
        return rows if rows and down % rows == 0 and along % (WARP // rows) == 0 else 0

    def _copy_values(self, found: Access) -> list[str]:
        """`direct`, or `shared` with elements a load, laid out as it is or turned, rows
        as they are or stretched."""
        wide = widest(DTYPE_BYTES[self.context.dtypes[found.read.tensor]])
        reduced = {axis.name for axis in self.group.anchor.reduce_axes}
        turns = ("", " turned") if reduced and turns_around(found.read, reduced) else ("",)
        pads = ("", " padded") if len(found.read.indices) > 1 else ("",)
        widths = dict.fromkeys((1, wide)) if not found.padded else (1,)
        return [
            "direct",
            *(f"shared {width}{turn}{pad}" for width in widths for turn in turns for pad in pads),
        ]

    @cached_property
    def _tiles(self) -> tuple[tuple[int, ...], ...]:
        found = list(self._fitting())
        threads = [prod(tile[0 : 3 * len(self.major) : 3]) for tile in found]
        least = min(LEAST_THREADS, max(threads))
        return tuple(tile for tile, count in zip(found, threads, strict=True) if count >= least)

    def tile_values(self) -> tuple[tuple[int, ...], ...]:
        """(threads, registers, lanes) of each major axis, then the depth of a
        reduction; each fits a block with all operands."""
        return self._tiles

    def _fitting(self) -> Iterator[tuple[int, ...]]:
        choices = [self._splits(name) for name in self.major]
        depths = self._depths()
        for parts in product(*choices):
            threads = tuple(threads for threads, _, _ in parts)
            accumulators = prod(register * lanes for _, register, lanes in parts)
            if accumulators > MAX_ACCUMULATORS or prod(threads) > 1024:
                continue
            flat = tuple(number for part in parts for number in part)
            for depth in depths:
                values = (*flat, depth) if depth else flat
                if self.footprint(values).fault is None:
                    yield values

    def _splits(self, name: str) -> list[tuple[int, int, int]]:
        """(threads, registers, lanes) of an axis; along the fastest one, neighbouring
        threads fill at least one sector."""
        extent = self._extent(name)
        small = (extent,) if 1 < extent <= WARP and extent not in THREADS else ()
        if name == self.fastest:
            lanes = [width for width in (1, 2, 4, 8, 16) if width <= self.lanes]
        else:
            lanes = [1, self._operand_lanes] if name in self._read_along else [1]
        found = []
        for threads, register, wide in product((*THREADS, *small), REGISTERS, lanes):
            block = threads * register * wide
            if block <= extent and -(-extent // block) * block - extent <= MAX_OVERLAP * extent:
                found.append((threads, register, wide))
        sector = SECTOR_BYTES // DTYPE_BYTES[self.group.output.dtype] if name == self.fastest else 1
        return [one for one in found if one[0] * one[2] >= sector] or found

    @cached_property
    def _operand_lanes(self) -> int:
        return widest(
            max(DTYPE_BYTES[self.context.dtypes[one.read.tensor]] for one in self.candidates)
        )

    @cached_property
    def _read_along(self) -> frozenset[str]:
        """Axes other than the fastest along which a turned operand lies: a thread then
        reads several neighbours at once."""
        reduced = {axis.name for axis in self.group.anchor.reduce_axes}
        found = set()
        for one in self.candidates if reduced else ():
            last = turned_forms(one.read, reduced)[-1]
            found |= {
                axis
                for axis, factor in last.coefficients.items()
                if factor == 1 and len(last.coefficients) == 1
            }
        return frozenset(found)

    def _depths(self) -> tuple[int, ...]:
        main = self._main
        if main is None:
            return (0,)
        short = (main.extent,) if main.extent <= DEPTHS[-1] else ()
        fitting = [
            depth
            for depth in DEPTHS
            if depth < main.extent and -(-main.extent // depth) * depth <= 1.25 * main.extent
        ]
        return tuple(sorted({*fitting, *short})) or (1,)

    def footprint(self, tile: tuple[int, ...]) -> Footprint:
        """What a block of this tile takes with every operand that could be shared shared.

        A reduction's copies are counted as running ahead of the computing, both ways:
        in two boxes, and through registers.
        """
        spatial, reduction = self._parts(tile, 1)
        spans = {one.axis.name: one.block for one in spatial} | {
            one.axis.name: one.depth for one in reduction
        }
        stage = self.group.anchor
        boxes = [
            (box_shape(one.read, spans), DTYPE_BYTES[self.context.dtypes[one.read.tensor]])
            for one in self.candidates
        ]
        lanes = max(one.lanes for one in spatial)
        shared = sum(box_bytes(box, itemsize, lanes) for box, itemsize in boxes)
        ahead = stage.reducer is not None and any(one.outer.extent > 1 for one in reduction[-1:])
        words = -(-DTYPE_BYTES[stage.accumulator if stage.reducer else stage.dtype] // 4)
        tiles = [one.register * one.lanes for one in spatial]
        operands = sum(tiles) if stage.reducer else 0
        threads = tuple(reversed(tile[0 : 3 * len(self.major) : 3]))
        held = (
            sum(-(-prod(box) * itemsize // (4 * prod(threads))) for box, itemsize in boxes)
            if ahead
            else 0
        )
        registers = (prod(tiles) + operands) * words + held + OTHER_REGISTERS
        return Footprint(
            threads=threads, registers=registers, shared_bytes=shared * (2 if ahead else 1)
        )

    # --- meaning
    # ------------------------------------------------------------------------------

    @property
    def facts(self) -> KernelFacts:
        return KernelFacts(
            kind=KernelKind.TILE,
            group=self.group,
            owner=self.prefix,
            knobs=self.knobs,
            footprint=self.footprint,
        )

    def nest(self, config: Mapping[str, Value]) -> Nest:
        """Raises IllegalSchedule where a block of the config cannot be launched."""
        return CudaTileNest(
            self.group, self.plan(config), self.context.shapes, self.context.dtypes
        ).build()

    def plan(self, config: Mapping[str, Value]) -> CudaTilePlan:
        """The config decoded; knobs with a single value are not in it."""
        values = {
            knob.name.removeprefix(self.prefix + "."): config[knob.name] for knob in self.knobs
        }
        tile = values.get("tile") or self.tile_values()[0]
        assert isinstance(tile, tuple)
        self.footprint(tile).check()
        unroll, warp = values.get("unroll", 1), values.get("warp", 0)
        assert isinstance(unroll, int) and isinstance(warp, int)
        spatial, reduction = self._parts(tile, unroll)
        order = values.get("order")
        chosen = order if isinstance(order, tuple) else tuple(range(len(self.major)))
        rest = tuple(axis.name for axis in self.axes if axis.name not in self.major)
        return CudaTilePlan(
            spatial=spatial,
            threads=self.major,
            grid=(*rest, *(self.major[place] for place in chosen)),
            reduction=reduction,
            copies=dict(self._copies(values)),
            warp=self._warp(tile, warp),
            pipeline=str(values.get("pipeline", "none")),
        )

    def _parts(
        self, tile: tuple[int, ...], unroll: int
    ) -> tuple[tuple[GridAxis, ...], tuple[DepthAxis, ...]]:
        sizes = {name: tile[3 * place : 3 * place + 3] for place, name in enumerate(self.major)}
        spatial = []
        for axis in self.axes:
            threads, register, lanes = sizes.get(axis.name, (1, 1, 1))
            spatial.append(GridAxis(axis=axis, threads=threads, register=register, lanes=lanes))
        main = self._main
        reduction = []
        # The longest axis last: its blocks are loaded one after another, its iterations unrolled.
        for axis in sorted(self.group.anchor.reduce_axes, key=lambda axis: axis == main):
            depth = tile[-1] if axis == main else axis.extent if axis.extent <= MAX_WINDOW else 1
            reduction.append(
                DepthAxis(
                    axis=axis,
                    depth=depth,
                    unroll=unroll if axis == main and depth % unroll == 0 else 1,
                )
            )
        return tuple(spatial), tuple(reduction)

    def _copies(self, values: Mapping[str, Value]) -> Iterator[tuple[Read, CopyPlan]]:
        for number, found in enumerate(self.candidates):
            how = str(values.get(f"fetch{number}_{found.read.tensor}", "direct"))
            if how != "direct":
                width = int(how.split()[1])
                yield (
                    found.read,
                    CopyPlan(turned="turned" in how, width=width, padded="padded" in how),
                )
