"""Knobs of the tile sketch for CPUs.

Their values are those that a stage's structure and the target's registers leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations, product
from math import prod
from typing import Any

from tuner.spaces.core.choice import Choice, choice, open_knobs
from tuner.spaces.core.context import SpaceContext
from tuner.spaces.core.roles import KnobRole
from tuner.spaces.core.space import Config, Knob
from tuner.spaces.cpu.copy_mode import CopyMode
from tuner.spaces.cpu.facts import LoopNestFacts, PrefetchedRead, Unrolling
from tuner.spaces.cpu.map_nest import map_nest
from tuner.spaces.cpu.prefetch import (
    MOST_USES,
    boxes,
    is_packed_in_parts,
    is_walked,
    read_once,
)
from tuner.spaces.cpu.store_mode import StoreMode, store_modes
from tuner.spaces.cpu.sum_nest import SumNest
from tuner.spaces.cpu.tile_plan import ReductionAxis, TilePlan
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.program import LARGEST_SHUFFLED_STRIDE, MathFunctions
from tuner.spaces.program.tiles import TiledAxis, fit_block
from tuner.spaces.rewrite.access import Access, accesses, in_bounds_condition
from tuner.spaces.rewrite.groups import TileGroup
from tuner.spaces.rewrite.predicates import live_fraction
from tuner.spaces.rewrite.stages import is_expensive
from tuner.target.target import Target
from tuner.workload.affine import value_range
from tuner.workload.expression import DTYPE_BYTES, Axis, Var, walk

# Elements of an axis in a cache block, besides none and the whole extent.
CACHE_BLOCKS = (32, 64, 128, 256, 512, 1024)
# Elements of an axis that fit a register tile. Beyond it, several tiles may share what one
# of them has brought in.
MIN_BLOCK = 4
MAX_REGISTER_TILE = 16  # elements of an axis that is not vectorised
# Iterations of a reduction axis that LLVM unrolls by itself, whatever else is in them.
SHORT_REDUCTION = 7
UNROLL_FACTORS = (1, 2, 4)  # iterations of a longer axis in an unrolled body
LONGEST_INDIVISIBLE = 9  # axis that is unrolled as a whole where no factor divides it
MAX_COSTLY_VECTORS = 4  # vectors of a tile whose points each cost transcendental functions
MOST_UNREAD = 2  # elements of a padded copy for each that is read
# Times its source that a packed copy may grow to; a 3x3 window packs to 9 times.
MAX_EXPANSION = 12


@dataclass(frozen=True)
class TileSketch:
    """The tile sketch of one group with one axis vectorised."""

    group: TileGroup
    context: SpaceContext
    vector: str | None
    # of a map: the axis along which what is read is contiguous, where that is not the vector
    across: str | None = None
    # whether an operand that can be read in place may be copied instead, or prefetched
    copying: bool = True
    # reduction axes that one instruction takes at once, below the lanes
    instruction_axes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        if self.across is not None:
            return f"turn_{self.across}_{self.vector}"
        return f"tile_{self.vector}" if self.vector else "tile"

    @property
    def prefix(self) -> str:
        return f"{self.group.name}.{self.name}"

    # --- facts
    # ------------------------------------------------------------------------------

    @cached_property
    def reads(self) -> tuple[Access, ...]:
        return accesses(self.group.anchor, self.context.shapes)

    @property
    def rate(self) -> float:
        """Multiply-adds of a sum of products in the time that one of float32 takes."""
        return 1.0

    @property
    def lanes(self) -> int:
        """Lanes of the accumulator's dtype in a vector register, fewer where the axis
        is shorter."""
        if self.vector is None:
            return 1
        stage = self.group.anchor
        dtype = stage.accumulator if stage.reducer else stage.dtype
        lanes = self.context.target.vector_bytes // max(DTYPE_BYTES[dtype], 1)
        extent = self._extent(self.vector)
        while lanes > extent:
            lanes //= 2
        return lanes

    def _extent(self, name: str) -> int:
        return next(axis.extent for axis in self.group.anchor.axes if axis.name == name)

    def _is_batch(self, axis: Axis) -> bool:
        """Whether every read moves with the axis, so that a register tile along it
        reuses nothing."""
        return all(axis.name in read.axes for read in self.reads)

    def _major(self) -> list[str]:
        """The axes whose loops are worth ordering, at most three, in the stage's order."""
        axes = [
            axis
            for axis in self.group.anchor.axes
            if axis.extent > 1 and (axis.name == self.vector or not self._fixed(axis))
        ]
        kept = sorted(axes, key=lambda axis: -axis.extent)[:3]
        return [axis.name for axis in axes if axis in kept]

    def _fixed(self, axis: Axis) -> bool:
        return (
            self.group.anchor.reducer is not None
            and self._is_batch(axis)
            and axis.name != self.vector
        )

    # --- choices
    # ------------------------------------------------------------------------------

    @property
    def knobs(self) -> tuple[Knob, ...]:
        return open_knobs(self.choices)

    @cached_property
    def choices(self) -> tuple[Choice[Any], ...]:
        """All decisions of the sketch, in the order of its knobs."""
        reduction: tuple[Choice[Any], ...] = ()
        if self.reduction_block is not None and self.unrolling is not None:
            reduction = (self.reduction_block, self.unrolling)
        return (
            self.register_tile,
            *self.cache_blocks.values(),
            self.outer_order,
            self.inner_order,
            *reduction,
            *self.copies,
            self.prefetch,
            self.store_mode,
            self.math_functions,
        )

    @cached_property
    def register_tile(self) -> Choice[tuple[int, ...]]:
        """Elements of each axis of the anchor."""
        return choice(self.prefix, KnobRole.REGISTER_TILE, self.register_values(), tuple)

    @cached_property
    def cache_blocks(self) -> dict[str, Choice[int]]:
        """Elements of each major axis; 0 for no blocking."""
        return {
            name: choice(
                self.prefix, KnobRole.CACHE_BLOCK, self._block_values(name), int, subject=name
            )
            for name in self._major()
        }

    @cached_property
    def outer_order(self) -> Choice[tuple[str, ...]]:
        return self._orders(KnobRole.OUTER_ORDER)

    @cached_property
    def inner_order(self) -> Choice[tuple[str, ...]]:
        return self._orders(KnobRole.INNER_ORDER)

    def _orders(self, role: KnobRole) -> Choice[tuple[str, ...]]:
        """All axes: those without a say first, then the major ones in every order."""
        major = self._major()
        rest = [axis.name for axis in self.group.anchor.axes if axis.name not in major]
        stored = tuple(permutations(range(len(major))))
        orders = tuple((*rest, *(major[position] for position in order)) for order in stored)
        return Choice(owner=self.prefix, role=role, values=orders, stored=stored)

    @cached_property
    def reduction_block(self) -> Choice[int] | None:
        """Iterations of a block of the longest reduction axis; None for a map."""
        if self.group.anchor.reducer is None:
            return None
        return choice(self.prefix, KnobRole.REDUCTION_BLOCK, self._depth_values(), int)

    @cached_property
    def unrolling(self) -> Choice[Unrolling] | None:
        if self.group.anchor.reducer is None:
            return None
        values = self.unroll_values()
        unrollings = tuple(
            Unrolling(position=position, factor=factor) for position, factor in values
        )
        return Choice(
            owner=self.prefix, role=KnobRole.UNROLL, values=unrollings, stored=tuple(values)
        )

    @cached_property
    def copies(self) -> tuple[Choice[CopyMode], ...]:
        """How each of `reads` is copied."""
        return tuple(
            choice(
                self.prefix,
                KnobRole.COPY,
                self._offered_copies(read),
                _word,
                subject=f"{number}_{read.read.tensor}",
            )
            for number, read in enumerate(self.reads)
        )

    def _offered_copies(self, read: Access) -> list[CopyMode]:
        modes = self.copy_values(read)
        return modes if self.copying or modes[0] is not CopyMode.NONE else modes[:1]

    @cached_property
    def prefetch(self) -> Choice[int]:
        """How far ahead: bytes of a map, blocks of a reduction and packed parts."""
        return choice(self.prefix, KnobRole.PREFETCH, self._prefetch_values(), int)

    @cached_property
    def store_mode(self) -> Choice[StoreMode]:
        return choice(
            self.prefix, KnobRole.STORE_MODE, self._store_values(), lambda mode: mode.value
        )

    @cached_property
    def math_functions(self) -> Choice[MathFunctions]:
        return choice(self.prefix, KnobRole.MATH_FUNCTIONS, self._mathematics_values(), str)

    def register_values(self) -> list[tuple[int, ...]]:
        """Register tiles, one number an axis.

        As many accumulators as registers allow, and enough of them to hide latency.
        """
        reduces, axes = self.group.anchor.reducer is not None, self.group.anchor.axes
        budget = self._accumulator_budget()
        counted = []
        for tile in product(*map(self._tile_sizes, axes)):
            sizes = {axis.name: size for axis, size in zip(axes, tile, strict=True)}
            plain = (sizes[name] for name in sizes if name not in (self.vector, self.across))
            if sum(size > 1 for size in plain) > 2:
                continue
            vectors = 1 if self.vector is None else sizes[self.vector] // self.lanes
            accumulators = prod(tile) // (self.lanes if self.vector else 1)
            if accumulators + (self._operands(vectors) if reduces else 0) <= budget:
                counted.append((accumulators, tile))
        most = max(accumulators for accumulators, _ in counted)
        least = min(8, most) if reduces and len(self.reads) > 1 else 1
        in_order = sorted(counted, key=lambda entry: entry[1][::-1])
        return [tile for accumulators, tile in in_order if accumulators >= least]

    def _tile_sizes(self, axis: Axis) -> list[int]:
        """Elements of one axis in a register tile."""
        reduces = self.group.anchor.reducer is not None
        if axis.name in (self.vector, self.across):
            counts = (1, 2, 3, 4, 6, 8) if axis.name == self.vector else (1, 2, 4)
            return [count * self.lanes for count in counts if count * self.lanes <= axis.extent]
        if axis.extent == 1 or (reduces and self._is_batch(axis)):
            return [1]
        return list(range(1, min(axis.extent, MAX_REGISTER_TILE) + 1))

    def _accumulator_budget(self) -> int:
        """Accumulators, with the operands of a step, that a register tile may take."""
        anchor = self.group.anchor
        # Transcendental functions are unrolled with the tile: beyond a few of them the
        # compiler takes seconds and gains nothing.
        costly = anchor.reducer is None and is_expensive(anchor.body)
        budget = MAX_COSTLY_VECTORS if costly else self.context.target.vector_registers
        # The smallest tile that is transposed in registers is a square.
        return budget if self.across is None else max(budget, self.lanes)

    def _operands(self, vectors: int) -> int:
        """Registers that the operands of a step take: one operand's vectors, and the
        element that lanes share. AVX-512 broadcasts that from memory for free where one
        vector takes it; for several the compiler keeps it, and where accumulators leave
        no register for it, stores and loads some of them in every step
        (docs/design-notes/0010)."""
        shared = any(self.vector not in read.axes for read in self.reads)
        free = self.context.target.vector_bytes >= 64 and (vectors == 1 or not shared)
        return vectors if free else vectors + 1

    def _block_values(self, name: str) -> list[int]:
        """Elements of a cache block, 0 for no blocking."""
        extent = self._extent(name)
        if extent <= MIN_BLOCK:
            return [0]
        share = -(
            -extent // self.context.units
        )  # of a thread: the longest runs of memory that each can have
        return [
            0,
            *sorted({size for size in (*CACHE_BLOCKS, share) if MIN_BLOCK < size < extent}),
            extent,
        ]

    def _main_reduction(self) -> Axis:
        return max(self.group.anchor.reduce_axes, key=lambda axis: axis.extent)

    def _depth_values(self) -> list[int]:
        """Iterations of a block of the longest reduction axis; its whole extent means one block."""
        extent = self._main_reduction().extent
        divisors = [size for size in range(4, extent // 2 + 1) if extent % size == 0]
        sizes = (4, 8, 16, 32, 64, 128, 192, 256, 384, 512, 768, 1024)
        near = {
            min(divisors, key=lambda size: abs(size - want))
            for want in sizes
            if divisors and want < extent
        }
        return [*sorted(near), extent] if extent >= 64 else [extent]

    def unroll_values(self) -> list[tuple[int, int]]:
        """(innermost reduction axis, iterations of it unrolled).

        A short axis is unrolled as a whole: the compiler would do so anyway. A slightly
        longer one that no factor divides, as the 9 iterations of a 3x3 window, may be
        unrolled as a whole, because it could not be unrolled otherwise.
        """
        axes = self.group.anchor.reduce_axes
        walked = [
            (position, axis)
            for position, axis in enumerate(axes)
            if axis.name not in self.instruction_axes and axis.extent > 1
        ]
        values = []
        for position, axis in walked:
            factors = [factor for factor in UNROLL_FACTORS if axis.extent % factor == 0]
            if axis.extent <= SHORT_REDUCTION:
                factors = [axis.extent]
            elif axis.extent <= LONGEST_INDIVISIBLE and factors == [1]:
                factors.append(axis.extent)
            values += [(position, factor) for factor in factors]
        return values or [(len(axes) - 1, 1)]

    def copy_values(self, access: Access) -> list[CopyMode]:
        stride = 0 if self.vector is None else access.stride(self.vector)
        in_vectors = stride is not None and 0 <= stride <= LARGEST_SHUFFLED_STRIDE
        stage = self.group.anchor
        if (
            self.across is not None
            and not self.contiguous(access)
            and access.stride(self.across) == 1
            and not access.padded
        ):
            return [CopyMode.PACK]
        if access.padded and access.gathered:
            # Where it reads is unknown: each element is compared with the border,
            # whatever copies there are.
            return [CopyMode.NONE]
        packable = self.packable(access)
        values: list[CopyMode] = []
        if access.padded:
            times = self._times_read(access)
            if (in_vectors and not self._pads_lanes(access)) or times <= 1:
                values.append(CopyMode.NONE)
            if times * MOST_UNREAD >= 1:
                values.append(CopyMode.PAD)
                if any(
                    axis.extent > 1 and self._fixed(axis) and access.divides(axis.name)
                    for axis in stage.axes
                ):
                    values.append(CopyMode.PAD_PARTS)
        elif in_vectors or not packable:
            values.append(CopyMode.NONE)
        if packable:
            values += [CopyMode.PACK, CopyMode.PACK_ROOT]
        return values

    def packable(self, access: Access) -> bool:
        """Whether a copy of an operand of a sum, in the order in which it is read, may
        be worth making."""
        stage = self.group.anchor
        if stage.reducer is None or access.gathered or not access.axes:
            return False
        reused = any(axis.extent > 1 and axis.name not in access.axes for axis in stage.axes)
        return (reused or not self.contiguous(access)) and self._grows_little(access)

    def contiguous(self, access: Access) -> bool:
        """Whether the lanes of a vector lie side by side in an operand, or are one number."""
        return self.vector is None or access.stride(self.vector) in (0, 1)

    def _grows_little(self, access: Access) -> bool:
        """Whether a packed copy is not too many times as large as its source."""
        extents = self.group.anchor.extents
        grown = prod(extents[name] for name in access.axes)
        return grown <= MAX_EXPANSION * prod(self.context.shapes[access.read.tensor])

    def _times_read(self, access: Access) -> float:
        """How often an element of a padded copy is read on average, of one that reaches
        from the first read to the last."""
        extents = self.group.anchor.extents
        reach = [value_range(index, extents) for index in access.read.indices]
        return self.group.anchor.points / prod(span.high - span.low + 1 for span in reach)

    def _pads_lanes(self, access: Access) -> bool:
        """Whether being inside the tensor differs between the lanes of a vector."""
        stage = self.group.anchor
        inside = in_bounds_condition(
            access.read.indices, self.context.shapes[access.read.tensor], stage.extents
        )
        return inside is not None and any(
            isinstance(node, Var) and node.name == self.vector for node in walk(inside)
        )

    def _prefetch_values(self) -> tuple[int, ...]:
        """How far ahead a nest fetches what it uses seldom and has beyond the second
        cache: bytes along the vectors of a map, blocks of a reduction, parts that are
        packed."""
        stage = self.group.anchor
        if not self.context.isa.prefetch:
            return (0,)
        if self.across is not None or self.lanes == 1 or self.instruction_axes or not self.copying:
            return (0,)
        if stage.reducer is None:
            streams, far = (
                read_once(stage, self.vector, self.context.shapes),
                self.context.isa.page_bytes,
            )
            tensors = {stage.name, *(read.tensor for read in streams)} if streams else set()
        else:
            tensors, far = (
                {
                    access.read.tensor
                    for access in boxes(stage, self.context.shapes)
                    if self._prefetchable(access)
                },
                1,
            )
        # TVM stores narrow floats as integers, under pointers of another type.
        wide = all(self.context.dtypes[name] in ("float32", "float64") for name in tensors)
        size = sum(
            prod(self.context.shapes[name]) * DTYPE_BYTES[self.context.dtypes[name]]
            for name in tensors
        )
        return (0, far) if wide and size > self.context.target.l2_bytes else (0,)

    def _store_values(self) -> tuple[StoreMode, ...]:
        """Whether an output goes past the caches; of a sum one that computes little for
        each element, and so waits for memory."""
        often = prod(axis.extent for axis in self.group.anchor.reduce_axes) > MOST_USES
        return (
            (StoreMode.CACHED,)
            if often or self.instruction_axes
            else store_modes(self.group.output, self.vector, self.lanes, self.context.target)
        )

    def _prefetchable(self, access: Access) -> bool:
        """Whether a box of what a sum reads can come ahead: a part that is packed, or
        the next block of the reduction."""
        copies, stage = self.copy_values(access), self.group.anchor
        in_place = (
            CopyMode.NONE in copies
            and len(self._depth_values()) > 1
            and is_walked(access, stage, self.vector)
        )
        return in_place or (CopyMode.PACK in copies and is_packed_in_parts(access, stage))

    def _mathematics_values(self) -> list[MathFunctions]:
        bodies = [self.group.anchor.body] + (
            [self.group.epilogue.body] if self.group.epilogue else []
        )
        return ["polynomial", "libm"] if any(is_expensive(body) for body in bodies) else ["libm"]

    # --- meaning
    # ------------------------------------------------------------------------------

    @cached_property
    def facts(self) -> LoopNestFacts:
        anchor = self.group.anchor
        prefetchable = {box.read for box in boxes(anchor, self.context.shapes)}
        return LoopNestFacts(
            context=self.context,
            stages=(anchor,),
            epilogue=self.group.epilogue,
            spatial=anchor.axes,
            reduction=anchor.reduce_axes,
            vector=self.vector,
            lanes=self.lanes,
            tiled=tuple(axis.name for axis in anchor.axes),
            register_tile=self.register_tile,
            cache_blocks=self.cache_blocks,
            outer_order=self.outer_order,
            inner_order=self.inner_order,
            reduction_block=self.reduction_block,
            unrolling=self.unrolling,
            reads=self.reads,
            copies=self.copies,
            prefetch=self.prefetch,
            prefetched=tuple(
                PrefetchedRead(
                    read=read,
                    in_place=is_walked(read, anchor, self.vector),
                    packed=is_packed_in_parts(read, anchor),
                )
                for read in self.reads
                if read.read in prefetchable
            ),
            store_mode=self.store_mode,
            math_functions=self.math_functions,
            instruction_axes=self.instruction_axes,
            rate=self.rate,
            loads_whole_rows=self.loads_whole_rows,
            computed_share=self._computed_share(),
        )

    @property
    def loads_whole_rows(self) -> bool:
        """Whether operands are loaded into matrix registers, row by row."""
        return False

    def _computed_share(self) -> float:
        """Of the points those that are computed: instructions that take several leave none out."""
        anchor = self.group.anchor
        if anchor.reducer is None or self.instruction_axes:
            return 1.0
        return live_fraction(anchor, self.group.live_conditions)

    def nest(self, config: Config) -> Nest:
        plan, context = self.plan(config), self.context
        if self.group.anchor.reducer is None:
            return map_nest(self.group, plan, context.shapes, context.dtypes)
        return SumNest(self.group, plan, context.shapes, context.dtypes).build()

    def plan(self, config: Config) -> TilePlan:
        """The config decoded."""
        stage = self.group.anchor
        spatial = []
        for axis, tile in zip(stage.axes, self.register_tile.of(config), strict=True):
            whole = TiledAxis(axis=axis, tile=tile)
            block = self.cache_blocks.get(axis.name)
            elements = 0 if block is None else block.of(config)
            lanes = self.lanes if axis.name in (self.vector, self.across) else 1
            spatial.append(
                TiledAxis(
                    axis=axis,
                    tile=tile,
                    block=fit_block(whole.tiles, -(-elements // tile)),
                    lanes=lanes,
                )
            )
        return TilePlan(
            spatial=tuple(spatial),
            vector=self.vector,
            reduction=self._reduction(config),
            outer_order=self.outer_order.of(config),
            inner_order=self.inner_order.of(config),
            copies={
                read.read: mode.of(config)
                for read, mode in zip(self.reads, self.copies, strict=True)
            },
            math_functions=self.math_functions.of(config),
            threads=self.context.units,
            line_bytes=self.context.isa.line_bytes,
            prefetch=self.prefetch.of(config),
            non_temporal=self.store_mode.of(config) is StoreMode.NON_TEMPORAL,
            instruction_axes=self.instruction_axes,
        )

    def _reduction(self, config: Config) -> tuple[ReductionAxis, ...]:
        if self.reduction_block is None or self.unrolling is None:
            return ()
        axes = self.group.anchor.reduce_axes
        main = self._main_reduction()
        depth, unrolling = self.reduction_block.of(config), self.unrolling.of(config)
        innermost = axes[unrolling.position]
        ordered = [axis for axis in axes if axis != innermost] + [innermost]
        reduction = []
        for axis in ordered:
            block = depth if axis == main else axis.extent
            divides = axis == innermost and block % unrolling.factor == 0
            unroll = unrolling.factor if divides else 1
            reduction.append(ReductionAxis(axis=axis, block=block, unroll=unroll))
        return tuple(sorted(reduction, key=lambda part: part.axis.name in self.instruction_axes))


def _word(mode: CopyMode) -> str:
    return mode.value


def tile_sketches(group: TileGroup, context: SpaceContext) -> list[TileSketch]:
    """One sketch for each axis worth vectorising, and one for transposed reads of a map.

    Worth it are the output's last axis, and the one along which most reads are made of
    vectors, in place or as packed copies. Where vectors along the last axis overlap by
    more than a twentieth, the longest axis is too: storing elements one by one is then
    little beside the sum.
    """
    stage, target = group.anchor, context.target
    reads = accesses(stage, context.shapes)

    def sketch(axis: str | None, across: str | None = None) -> TileSketch:
        return TileSketch(group, context, axis, across)

    def in_vectors(axis: Axis) -> tuple[int, int]:
        along = sketch(axis.name)
        contiguous = [along.contiguous(read) for read in reads]
        return sum(
            here or along.packable(read) for here, read in zip(contiguous, reads, strict=True)
        ), sum(contiguous)

    wide = [axis for axis in stage.axes if axis.extent >= 2]
    if not wide:
        return [sketch(None)]
    last = next(axis for axis in reversed(group.output.axes) if axis.extent >= 2)
    last = next(axis for axis in stage.axes if axis.name == last.name)
    best = max(wide, key=lambda axis: (*in_vectors(axis), axis.extent))
    lanes = target.vector_bytes // DTYPE_BYTES[stage.accumulator if stage.reducer else stage.dtype]
    longest = max(wide, key=lambda axis: axis.extent)
    overlap = -(-last.extent // lanes) * lanes - last.extent
    alternative = (
        stage.reducer is not None and overlap * 20 > last.extent and lanes <= longest.extent
    )
    worth = (last, best, longest) if alternative else (last, best)
    chosen = dict.fromkeys(
        axis.name for axis in worth if any(axis.name in read.axes for read in reads) or axis is last
    )
    sketches = [sketch(name) for name in chosen]
    across = _across(group, last, reads, target)
    return sketches if across is None else [*sketches, sketch(last.name, across)]


def _across(group: TileGroup, vector: Axis, reads: Sequence[Access], target: Target) -> str | None:
    """The axis along which a map reads contiguously what it writes along another.

    None where one of them is too short to transpose square tiles in registers.
    """
    stage = group.anchor
    lanes = target.vector_bytes // DTYPE_BYTES[stage.dtype]
    if stage.reducer is not None or vector.extent < lanes or not 4 <= lanes <= 16:
        return None
    transposed = [
        read for read in reads if read.stride(vector.name) not in (0, 1, None) and not read.padded
    ]
    for axis in stage.axes:
        if (
            axis.name != vector.name
            and axis.extent >= lanes
            and any(read.stride(axis.name) == 1 for read in transposed)
        ):
            return axis.name
    return None
