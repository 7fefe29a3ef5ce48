"""Sums of products of small integers, two at a time: the tile sketch with one reduction axis taken in pairs.

x86 multiplies 16-bit integers pairwise and adds each pair to a 32-bit lane in one instruction (vpmaddwd; with VNNI it accumulates
too, vpdpwssd). Exact for operands of 8 bits: a pair is at most 2 * 255 * 255. Both operands are packed in pairs and widened when
they are loaded; the lanes of the accumulators are the vectorised axis, as in the tile sketch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tuner.spaces.cpu_plan import ReductionAxis, TilePlan
from tuner.spaces.cpu_tile_knobs import TileSketch
from tuner.spaces.groups import TileGroup
from tuner.spaces.space import Value
from tuner.spaces.stages import Access, accesses
from tuner.spaces.tiles import add, times
from tuner.target.target import Target
from tuner.workload.expression import Axis, Binary, Cast, DType, Read, Stage, Var, substitute

SMALL = frozenset({"int8", "uint8"})
PAIR = 2
# Feature that gives the instruction for as many lanes.
LANES: Mapping[int, str] = {16: "avx512bw", 8: "avx2"}


@dataclass(frozen=True)
class PairSketch(TileSketch):
    """The group's anchor has its paired axis split in two: half as many steps, and the place in a pair, `pair`."""

    pair: str = ""

    @property
    def name(self) -> str:
        return f"pairs_{self.vector}"

    def copy_values(self, found: Access) -> list[str]:
        return ["pack", "pack_root"]

    def _unroll_values(self) -> list[tuple[int, int]]:
        return [(position, factor) for position, factor in super()._unroll_values() if self._steps(position)]

    def _steps(self, position: int) -> bool:
        return self.group.anchor.reduce_axes[position].name != self.pair

    def plan(self, config: Mapping[str, Value]) -> TilePlan:
        return replace(super().plan(config), pair=self.pair)

    def _reduction(self, values: Mapping[str, Value]) -> tuple[ReductionAxis, ...]:
        made = super()._reduction(values)
        return tuple(sorted(made, key=lambda axis: axis.axis.name == self.pair))


def pair_sketch(
    group: TileGroup,
    vector: str,
    target: Target,
    threads: int,
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, DType],
) -> PairSketch | None:
    """None where the anchor is no sum of products of 8-bit integers or has no even reduction axis that both operands share."""
    operands = _operands(group.anchor, dtypes)
    if operands is None or {vector in found.axes for found in accesses(group.anchor, shapes)} != {True, False}:
        return None
    shared = set[str].intersection(*(set(found.axes) for found in accesses(group.anchor, shapes)))
    paired = next((axis for axis in reversed(group.anchor.reduce_axes) if axis.name in shared and axis.extent % PAIR == 0), None)
    if paired is None:
        return None
    anchor, pair = _split(group.anchor, paired)
    sketch = PairSketch(replace(group, anchor=anchor), vector, target, threads, shapes, dtypes, pair=pair)
    if LANES.get(sketch.lanes, "none") not in target.isa:
        return None
    return sketch if all(TileSketch.copy_values(sketch, found)[-1] == "pack_root" for found in sketch.reads) else None


def _operands(stage: Stage, dtypes: Mapping[str, DType]) -> tuple[Read, Read] | None:
    """The two factors of a sum of products of small integers."""
    if stage.reducer != "sum" or stage.accumulator != "int32":
        return None
    match stage.body:
        case Binary(op="mul", lhs=Cast(dtype="int32", arg=Read() as one), rhs=Cast(dtype="int32", arg=Read() as other)):
            small = one != other and {dtypes[one.tensor], dtypes[other.tensor]} <= SMALL
            return (one, other) if small else None
    return None


def _split(stage: Stage, paired: Axis) -> tuple[Stage, str]:
    """The stage with the axis as steps of pairs, and the new axis' name."""
    names = {axis.name for axis in (*stage.axes, *stage.reduce_axes)}
    pair = next(name for name in (f"{paired.name}{'h' * count}" for count in range(1, len(names) + 2)) if name not in names)
    steps = Axis(name=paired.name, extent=paired.extent // PAIR)
    others = tuple(steps if axis == paired else axis for axis in stage.reduce_axes)
    body = substitute(stage.body, {paired.name: add(times(Var(paired.name), PAIR), Var(pair))})
    return replace(stage, reduce_axes=(*others, Axis(name=pair, extent=PAIR)), body=body), pair
