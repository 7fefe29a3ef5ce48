"""Knobs of the row sketch for CPUs: rows at a time, lanes of the column, what is kept
and what is computed twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations, product
from math import prod

from tuner.spaces.core.space import Knob, Value
from tuner.spaces.cpu.rows import RowNest, RowPlan, passes, row_reads
from tuner.spaces.cpu.store_mode import STREAMED, store_values
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.tiles import TiledAxis, fit_block
from tuner.spaces.rewrite.access import accesses
from tuner.spaces.rewrite.groups import COLUMN, RowGroup, TileGroup
from tuner.spaces.rewrite.stages import approximated, costs_mathematics
from tuner.target.target import Target
from tuner.workload.expression import DTYPE_BYTES, Axis, DType, Stage, Var, substitute

CACHE_BLOCKS = (8, 16, 32, 64, 128, 256)  # rows of a cache block, besides none and all
MAX_COSTLY_VECTORS = (
    17  # vectors of a tile whose points each cost transcendental functions, and one operand
)
AHEAD = (0, 1, 4)  # tiles of rows
MAX_ROW_TILE = 8  # rows of an axis at a time


@dataclass(frozen=True)
class RowSketch:
    """The row sketch of one group. `reuse`: rows share operands, so tiles of rows on
    two axes pay (a matrix product)."""

    group: RowGroup
    reuse: bool
    target: Target
    threads: int
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, DType]

    @property
    def name(self) -> str:
        return "lanes" if self.reuse else "rows"

    @property
    def prefix(self) -> str:
        return f"{self.group.name}.{self.name}"

    @property
    def lanes(self) -> int:
        reducing = next(stage for stage in self.group.stages if stage.reducer is not None)
        lanes = self.target.vector_bytes // max(DTYPE_BYTES[reducing.accumulator], 1)
        while lanes > self.group.column.extent:
            lanes //= 2
        return lanes

    def tiled_rows(self) -> list[Axis]:
        """The row axes that get tiles: the two longest where rows share operands, else
        the innermost that is no unit."""
        wide = [axis for axis in self.group.rows if axis.extent > 1]
        if self.reuse:
            longest = sorted(wide, key=lambda axis: -axis.extent)[:2]
            return [axis for axis in wide if axis in longest]
        return wide[-1:]

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        knobs = [self._knob("register", self.register_values())]
        tiled = self.tiled_rows()
        if self.reuse:
            knobs += [self._knob(f"block_{axis.name}", self._block_values(axis)) for axis in tiled]
            orders = tuple(permutations(range(len(tiled))))
            knobs += [self._knob("outer_order", orders), self._knob("inner_order", orders)]
        knobs += [
            self._knob(f"keep_{stage.name}", ("keep", "recompute")) for stage in self._optional()
        ]
        knobs.append(self._knob("ahead", self._ahead_values()))
        knobs.append(
            self._knob("stores", store_values(self.group.output, COLUMN, self.lanes, self.target))
        )
        if any(approximated(stage.body) for stage in self.group.stages):
            knobs.append(self._knob("mathematics", ("polynomial", "libm")))
        return tuple(knob for knob in knobs if len(knob.values) > 1)

    def _knob(self, what: str, values: Iterable[Value]) -> Knob:
        return Knob(name=f"{self.prefix}.{what}", values=tuple(values))

    def _optional(self) -> list[Stage]:
        """Stages along the column that may be kept in a row buffer or computed again by
        each reader."""
        rows = len(self.group.rows)
        return [
            stage
            for stage in self.group.stages[:-1]
            if stage.reducer is None and len(stage.axes) > rows
        ]

    def register_values(self) -> list[tuple[int, ...]]:
        """(rows of each tiled axis…, elements of the column) of a tile of accumulators."""
        rows = [range(1, min(axis.extent, MAX_ROW_TILE) + 1) for axis in self.tiled_rows()]
        columns = [
            count * self.lanes
            for count in (1, 2, 4, 8)
            if count * self.lanes <= self.group.column.extent
        ]
        found = []
        for values in product(*rows, columns):
            *tile, column = values
            vectors = column // self.lanes
            operands = min(sum(tile), 8) if self.reuse else 1
            costly = any(costs_mathematics(stage.body) for stage in self.group.stages)
            budget = (
                MAX_COSTLY_VECTORS if costly and not self.reuse else self.target.vector_registers
            )
            if prod(tile) * vectors + operands <= budget:
                found.append(tuple(values))
        most = max(prod(tile[:-1]) for tile in found)
        least = min(4, most) if self.reuse else 1
        return [
            tile for tile in sorted(found, key=lambda one: one[::-1]) if prod(tile[:-1]) >= least
        ]

    def _ahead_values(self) -> tuple[int, ...]:
        """Tiles of rows that inputs are fetched ahead, where a later pass over a row
        has the time for it."""
        first, *later = passes(self.group.stages, len(self.group.rows))
        found = row_reads(first, self.group, self.shapes) if later and not self.reuse else ()
        # TVM stores narrow floats as integers, under pointers of another type.
        wide = found and all(self.dtypes[read.tensor] in ("float32", "float64") for read in found)
        return AHEAD if wide else (0,)

    def _block_values(self, axis: Axis) -> list[int]:
        return (
            [0, *(size for size in CACHE_BLOCKS if size < axis.extent), axis.extent]
            if axis.extent > MAX_ROW_TILE
            else [0]
        )

    def nest(self, config: Mapping[str, Value]) -> Nest:
        return RowNest(self.group, self.plan(config), self.shapes).build()

    def plan(self, config: Mapping[str, Value]) -> RowPlan:
        """The config decoded; knobs with a single value are not in it."""
        values = {
            knob.name.removeprefix(self.prefix + "."): config[knob.name] for knob in self.knobs
        }
        register = values.get("register") or self.register_values()[0]
        assert isinstance(register, tuple)
        tiled = self.tiled_rows()
        tiles = {axis.name: size for axis, size in zip(tiled, register[:-1], strict=True)}
        rows = []
        for axis in self.group.rows:
            tile = tiles.get(axis.name, 1)
            whole = TiledAxis(axis=axis, tile=tile)
            wanted = int(values.get(f"block_{axis.name}", 0))  # type: ignore[arg-type]  # a block knob's values are integers
            rows.append(
                TiledAxis(axis=axis, tile=tile, block=fit_block(whole.tiles, -(-wanted // tile)))
            )
        return RowPlan(
            rows=tuple(rows),
            outer_order=self.order(values.get("outer_order")),
            inner_order=self.order(values.get("inner_order")),
            column=TiledAxis(axis=self.group.column, tile=register[-1], lanes=self.lanes),
            recomputed=frozenset(
                stage.name
                for stage in self._optional()
                if values.get(f"keep_{stage.name}") == "recompute"
            ),
            mathematics="polynomial" if values.get("mathematics") == "polynomial" else "libm",
            ahead=int(values.get("ahead", 0)),  # type: ignore[arg-type]  # the knob's values are integers
            streamed=values.get("stores") == STREAMED,
            threads=self.threads,
        )

    def order(self, order: Value | None) -> tuple[str, ...]:
        """All row axes: those without a say first, then the tiled ones as chosen."""
        tiled = self.tiled_rows()
        rest = [axis.name for axis in self.group.rows if axis not in tiled]
        chosen = order if isinstance(order, tuple) else tuple(range(len(tiled)))
        return (*rest, *(tiled[position].name for position in chosen))


def row_sketch(
    group: RowGroup,
    target: Target,
    threads: int,
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, DType],
) -> RowSketch:
    return RowSketch(group, False, target, threads, shapes, dtypes)


def lane_sketches(
    group: TileGroup,
    target: Target,
    threads: int,
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, DType],
) -> list[RowSketch]:
    """The row sketch of a reduction that reuses operands, where one of its reduction
    axes is contiguous in all reads along it."""
    stage = group.anchor
    if stage.reducer is None or not stage.axes:
        return []
    found = accesses(stage, shapes)
    for axis in reversed(stage.reduce_axes):
        moving = [one for one in found if axis.name in one.axes]
        if (
            axis.extent >= 8
            and moving
            and all(
                one.stride(axis.name) == 1 and not one.padded and not one.gathered for one in moving
            )
        ):
            return [RowSketch(_as_rows(group, axis), True, target, threads, shapes, dtypes)]
    return []


def _as_rows(group: TileGroup, column: Axis) -> RowGroup:
    anchor = group.anchor
    reduce_axes = tuple(
        Axis(name=COLUMN, extent=axis.extent) if axis == column else axis
        for axis in anchor.reduce_axes
    )
    renamed = replace(
        anchor, reduce_axes=reduce_axes, body=substitute(anchor.body, {column.name: Var(COLUMN)})
    )
    stages = (renamed,) if group.epilogue is None else (renamed, group.epilogue)
    return RowGroup(rows=anchor.axes, column=Axis(name=COLUMN, extent=column.extent), stages=stages)
