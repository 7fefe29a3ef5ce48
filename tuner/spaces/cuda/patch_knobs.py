"""Knobs of the patch sketch for GPUs: threads of each axis with the elements of a vector,
and the order of blocks.

The sketch takes a map whose body picks by comparing constants with the index of a short
axis, or with an index modulo a number: each such axis is walked in patches of that
length. It knows no operator's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

from tuner.spaces.core.choice import Choice
from tuner.spaces.core.space import Config
from tuner.spaces.cuda.axes import GridAxis, PatchAxis
from tuner.spaces.cuda.block_shapes import PatchShape
from tuner.spaces.cuda.facts import ComputeUnit, KernelFacts
from tuner.spaces.cuda.limits import LEAST_THREADS, OTHER_REGISTERS, Footprint, covers, widest
from tuner.spaces.cuda.patch import CudaPatchNest
from tuner.spaces.cuda.shared_choices import axis_order_choice, block_choice
from tuner.spaces.cuda.sketch import CudaSketch
from tuner.spaces.cuda.tile_knobs import LANES, MAX_AXES, SECTOR_BYTES, THREADS
from tuner.spaces.cuda.tile_plan import CudaTilePlan
from tuner.spaces.program.nest import Nest
from tuner.spaces.rewrite.access import Access, accesses
from tuner.spaces.rewrite.groups import TileGroup
from tuner.target.cuda import WARP
from tuner.workload.affine import linear
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import Axis, Read, Var, walk


@dataclass(frozen=True)
class CudaPatchSketch(CudaSketch[TileGroup]):
    """The patch sketch of one group; `lengths` says that it has one."""

    lengths: Mapping[str, int]  # of `patch_lengths`

    # As configs, tables and the database have it.
    name = "square"

    # --- what the group is like

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.group.anchor.axes

    def _points(self, axis: Axis) -> int:
        """What is dealt out to threads along an axis: its elements, or its patches."""
        return -(-axis.extent // self.lengths.get(axis.name, 1))

    @cached_property
    def major(self) -> tuple[str, ...]:
        """The axes with threads: those with the most patches or elements, and the output's
        last one last."""
        *others, last = [axis for axis in self.axes if self._points(axis) > 1] or [self.axes[-1]]
        longest = sorted(others, key=lambda axis: -self._points(axis))[: MAX_AXES - 1]
        return (*(axis.name for axis in others if axis in longest), last.name)

    @cached_property
    def lanes(self) -> int:
        """Elements of a load or store of the last axis, at most: 1 where it is one of a
        patch's or not read contiguously."""
        last = self.axes[-1]
        if (
            last.name != self.major[-1]
            or last.name in self.lengths
            or not all(_is_contiguous(operand.read, last) for operand in self._reads)
        ):
            return 1
        lanes = widest(DTYPE_BYTES[self.group.output.dtype])
        while last.extent % lanes:
            lanes //= 2
        return lanes

    @cached_property
    def _reads(self) -> tuple[Access, ...]:
        return accesses(self.group.anchor, self.context.shapes)

    # --- choices

    @cached_property
    def choices(self) -> tuple[Choice[Any], ...]:
        return (self.block, self.order)

    @cached_property
    def block(self) -> Choice[PatchShape]:
        """Shapes that fit a block, without those that leave schedulers idle; empty where
        none fits."""
        fitting = list(self._fitting())
        least = min(LEAST_THREADS, max((prod(shape.threads) for shape in fitting), default=0))
        shapes = [shape for shape in fitting if prod(shape.threads) >= least]
        return block_choice(self.prefix, shapes)

    @cached_property
    def order(self) -> Choice[tuple[str, ...]]:
        return axis_order_choice(self.prefix, [axis.name for axis in self.axes], self.major)

    def _fitting(self) -> Iterator[PatchShape]:
        by_name = {axis.name: axis for axis in self.axes}
        *others, last = (self._points(by_name[name]) for name in self.major)
        # Adjacent threads along the last axis fill at least one sector.
        itemsize = DTYPE_BYTES[self.group.output.dtype]
        sector = SECTOR_BYTES // itemsize // self.lengths.get(self.major[-1], 1)
        for lanes in (width for width in LANES if width <= self.lanes):
            along = [
                threads
                for threads in _thread_counts(last // lanes)
                if threads * lanes >= min(sector, last)
            ]
            for threads in product(*map(_thread_counts, others), along):
                shape = PatchShape(threads=threads, lanes=lanes)
                if self.footprint(shape).fault is None:
                    yield shape

    def footprint(self, shape: PatchShape) -> Footprint:
        """What a block of this shape takes, with all that a thread reads in registers at
        once."""
        last = self.major[-1]
        loads = [
            (DTYPE_BYTES[self.context.dtypes[operand.read.tensor]], last in operand.axes)
            for operand in self._reads
        ]
        held = sum(-(-itemsize * (shape.lanes if moves else 1) // 4) for itemsize, moves in loads)
        value = -(-shape.lanes * DTYPE_BYTES[self.group.output.dtype] // 4)
        return Footprint(
            threads=tuple(reversed(shape.threads)),
            registers=held + value + OTHER_REGISTERS,
            shared_bytes=0,
        )

    # --- meaning

    @cached_property
    def facts(self) -> KernelFacts:
        return KernelFacts(
            owner=self.prefix,
            group=self.group.name,
            unit=ComputeUnit.CUDA_CORES,
            block=self.block,
            footprints=tuple(map(self.footprint, self.block.values)),
        )

    def nest(self, config: Config) -> Nest:
        return CudaPatchNest(self.group, self.plan(config), self.context).build()

    def plan(self, config: Config) -> CudaTilePlan:
        """The config decoded."""
        shape = self.block.of(config)
        return CudaTilePlan(
            spatial=tuple(self._axis(axis, shape) for axis in self.axes),
            threads=self.major,
            grid=self.order.of(config),
        )

    def _axis(self, axis: Axis, shape: PatchShape) -> GridAxis:
        threads = dict(zip(self.major, shape.threads, strict=True)).get(axis.name, 1)
        if axis.name in self.lengths:
            return PatchAxis(axis=axis, threads=threads, lanes=self.lengths[axis.name])
        lanes = shape.lanes if axis.name == self.major[-1] else 1
        return GridAxis(axis=axis, threads=threads, lanes=lanes)


def _thread_counts(points: int) -> list[int]:
    """Threads of an axis with so many patches, elements or vectors."""
    whole = (points,) if 1 < points <= WARP and points not in THREADS else ()
    return [threads for threads in (*THREADS, *whole) if covers(points, threads)]


def _is_contiguous(read: Read, axis: Axis) -> bool:
    """Whether adjacent elements along the axis read adjacent elements, or the same."""
    form = linear(read.indices[-1])
    before = any(
        isinstance(node, Var) and node.name == axis.name
        for index in read.indices[:-1]
        for node in walk(index)
    )
    return form is not None and form.coefficient(axis.name) in (0, 1) and not before
