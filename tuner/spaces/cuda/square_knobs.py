"""Knobs of the square sketch for GPUs: threads of each axis with the elements of a
vector, and the order of blocks.

The sketch takes a map whose body picks by comparing constants with the index of a short
axis, or with an index modulo a number: each such axis is walked in squares of that
side. It knows no operator's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations, product
from math import prod

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.core.space import Knob, Value
from tuner.spaces.cuda.axes import GridAxis, SquareAxis
from tuner.spaces.cuda.facts import KernelFacts, KernelKind
from tuner.spaces.cuda.limits import LEAST_THREADS, OTHER_REGISTERS, Footprint, widest
from tuner.spaces.cuda.square import CudaSquareNest
from tuner.spaces.cuda.tile import CudaTilePlan
from tuner.spaces.cuda.tile_knobs import MAX_AXES, MAX_OVERLAP, SECTOR_BYTES, THREADS
from tuner.spaces.program.nest import Nest
from tuner.spaces.rewrite.access import Access, accesses, linear
from tuner.spaces.rewrite.groups import TileGroup
from tuner.target.cuda import WARP
from tuner.workload.expression import (
    DTYPE_BYTES,
    Axis,
    Binary,
    Const,
    Read,
    Select,
    Stage,
    Var,
    walk,
)

MAX_SIDE = 8  # of a square; a longer axis is no square's side


def sides_of(stage: Stage) -> dict[str, int]:
    """Axes that the stage's body picks by, each with its square's side; empty where
    there are none or they have two sides."""
    extents = {axis.name: axis.extent for axis in stage.axes}
    found: dict[str, int] = {}
    for node in walk(stage.body) if stage.reducer is None else ():
        match node:
            case Select(cond=Binary(op="eq", lhs=Var(name=name), rhs=Const())) if name in extents:
                side = extents[name]
            case Select(
                cond=Binary(
                    op="eq",
                    lhs=Binary(op="floormod", lhs=Var(name=name), rhs=Const(value=value)),
                    rhs=Const(),
                )
            ):
                side = int(value) if name in extents else 0
            case _:
                continue
        if not 1 < side <= MAX_SIDE or found.setdefault(name, side) != side:
            return {}
    return found


@dataclass(frozen=True)
class CudaSquareSketch:
    """The square sketch of one group; `sides` says that it has one."""

    group: TileGroup
    context: SpaceContext
    sides: Mapping[str, int]  # of `sides_of`

    name = "square"

    @property
    def prefix(self) -> str:
        return f"{self.group.name}.{self.name}"

    # --- facts
    # ------------------------------------------------------------------------------

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.group.anchor.axes

    def _points(self, axis: Axis) -> int:
        """What is shared out along an axis: its elements, or its squares."""
        return -(-axis.extent // self.sides.get(axis.name, 1))

    @cached_property
    def major(self) -> tuple[str, ...]:
        """The axes with threads, the output's last one last: it, and those with the
        most squares or elements of the others."""
        shared_out = [axis for axis in self.axes if self._points(axis) > 1] or [self.axes[-1]]
        others = sorted(shared_out[:-1], key=lambda axis: -self._points(axis))[: MAX_AXES - 1]
        return (*(axis.name for axis in shared_out[:-1] if axis in others), shared_out[-1].name)

    @cached_property
    def lanes(self) -> int:
        """Elements of a load or store of the last axis, at most: 1 where it is one of a
        square's or read from afar."""
        last = self.axes[-1]
        if (
            last.name != self.major[-1]
            or last.name in self.sides
            or not all(_near(one.read, last) for one in self._reads)
        ):
            return 1
        wide = widest(DTYPE_BYTES[self.group.output.dtype])
        while last.extent % wide:
            wide //= 2
        return wide

    @cached_property
    def _reads(self) -> tuple[Access, ...]:
        return accesses(self.group.anchor, self.context.shapes)

    # --- knobs
    # ------------------------------------------------------------------------------

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        knobs = [
            Knob(name=f"{self.prefix}.tile", values=self.tile_values()),
            Knob(name=f"{self.prefix}.order", values=tuple(permutations(range(len(self.major))))),
        ]
        return tuple(knob for knob in knobs if len(knob.values) > 1)

    def tile_values(self) -> tuple[tuple[int, ...], ...]:
        """Threads of each major axis, then elements of a vector along the last; each
        fits a block. Empty where none does."""
        return self._tiles

    @cached_property
    def _tiles(self) -> tuple[tuple[int, ...], ...]:
        found = list(self._fitting())
        least = min(LEAST_THREADS, max((prod(tile[:-1]) for tile in found), default=0))
        return tuple(tile for tile in found if prod(tile[:-1]) >= least)

    def _fitting(self) -> Iterator[tuple[int, ...]]:
        by_name = {axis.name: axis for axis in self.axes}
        *others, last = (self._points(by_name[name]) for name in self.major)
        # Neighbours along the last axis fill at least one sector.
        sector = (
            SECTOR_BYTES
            // DTYPE_BYTES[self.group.output.dtype]
            // self.sides.get(self.major[-1], 1)
        )
        for lanes in (width for width in (1, 2, 4, 8, 16) if width <= self.lanes):
            along = [
                threads
                for threads in _counts(last // lanes)
                if threads * lanes >= min(sector, last)
            ]
            for tile in product(*map(_counts, others), along, (lanes,)):
                if self.footprint(tile).fault is None:
                    yield tile

    def footprint(self, tile: tuple[int, ...]) -> Footprint:
        """What a block of this tile takes, with all that a thread reads in registers at once."""
        *threads, lanes = tile
        last = self.major[-1]
        words = [
            (DTYPE_BYTES[self.context.dtypes[one.read.tensor]], lanes if last in one.axes else 1)
            for one in self._reads
        ]
        held = sum(-(-itemsize * wide // 4) for itemsize, wide in words)
        value = -(-lanes * DTYPE_BYTES[self.group.output.dtype] // 4)
        return Footprint(
            threads=tuple(reversed(threads)),
            registers=held + value + OTHER_REGISTERS,
            shared_bytes=0,
        )

    # --- meaning
    # ------------------------------------------------------------------------------

    @property
    def facts(self) -> KernelFacts:
        return KernelFacts(
            kind=KernelKind.PATCH,
            group=self.group,
            owner=self.prefix,
            knobs=self.knobs,
            footprint=self.footprint,
        )

    def nest(self, config: Mapping[str, Value]) -> Nest:
        """Raises IllegalSchedule where a block of the config cannot be launched."""
        return CudaSquareNest(
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
        order = values.get("order")
        chosen = order if isinstance(order, tuple) else tuple(range(len(self.major)))
        rest = tuple(axis.name for axis in self.axes if axis.name not in self.major)
        return CudaTilePlan(
            spatial=tuple(self._axis(axis, tile) for axis in self.axes),
            threads=self.major,
            grid=(*rest, *(self.major[place] for place in chosen)),
            reduction=(),
            copies={},
        )

    def _axis(self, axis: Axis, tile: tuple[int, ...]) -> GridAxis:
        *counts, lanes = tile
        threads = dict(zip(self.major, counts, strict=True)).get(axis.name, 1)
        if axis.name in self.sides:
            return SquareAxis(axis=axis, threads=threads, lanes=self.sides[axis.name])
        return GridAxis(
            axis=axis, threads=threads, lanes=lanes if axis.name == self.major[-1] else 1
        )


def _counts(points: int) -> list[int]:
    """Threads of an axis with so many squares, elements or vectors."""
    exact = (points,) if 1 < points <= WARP and points not in THREADS else ()
    counts = [threads for threads in (*THREADS, *exact) if threads <= points]
    return [
        threads
        for threads in counts
        if -(-points // threads) * threads - points <= MAX_OVERLAP * points
    ]


def _near(read: Read, axis: Axis) -> bool:
    """Whether neighbours along the axis are neighbours in what is read, or the same."""
    form = linear(read.indices[-1])
    before = any(
        isinstance(node, Var) and node.name == axis.name
        for index in read.indices[:-1]
        for node in walk(index)
    )
    return form is not None and form.coefficient(axis.name) in (0, 1) and not before
