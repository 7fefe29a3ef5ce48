"""Sums of products of small integers, two at a time: the tile sketch with one reduction axis taken in pairs.

x86 multiplies 16-bit integers pairwise and adds each pair to a 32-bit lane in one instruction (vpmaddwd; with VNNI it accumulates
too, vpdpwssd). Exact for operands of 8 bits: a pair is at most 2 * 255 * 255. Both operands are packed in pairs and widened when
they are loaded; the lanes of the accumulators are the vectorised axis, as in the tile sketch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tuner.spaces.cpu_products import cut, factors, shared_axes
from tuner.spaces.cpu_tile_knobs import TileSketch
from tuner.spaces.groups import TileGroup
from tuner.spaces.stages import Access, accesses
from tuner.target.target import Target
from tuner.workload.expression import DType

SMALL = frozenset({"int8", "uint8"})
PAIR = 2
# Feature that gives the instruction for as many lanes.
LANES: Mapping[int, str] = {16: "avx512bw", 8: "avx2"}


@dataclass(frozen=True)
class PairSketch(TileSketch):
    """The group's anchor has its paired axis split in two: half as many steps, and the place in a pair, `taken`."""

    @property
    def name(self) -> str:
        return f"pairs_{self.vector}"

    @property
    def rate(self) -> float:
        return float(PAIR)

    def copy_values(self, found: Access) -> list[str]:
        return ["pack", "pack_root"]


def pair_sketch(
    group: TileGroup,
    vector: str,
    target: Target,
    threads: int,
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, DType],
) -> PairSketch | None:
    """None where the anchor is no sum of products of 8-bit integers or has no even reduction axis that both operands share."""
    anchor, found = group.anchor, accesses(group.anchor, shapes)
    operands = factors(anchor)
    if operands is None or anchor.accumulator != "int32" or not {dtypes[one.tensor] for one in operands} <= SMALL:
        return None
    if {vector in one.axes for one in found} != {True, False}:
        return None
    paired = next((axis for axis in reversed(shared_axes(anchor, found)) if axis.extent % PAIR == 0), None)
    made = cut(anchor, paired, (PAIR,), shapes, dtypes) if paired is not None else None
    if made is None:
        return None
    sketch = PairSketch(replace(group, anchor=made[0]), vector, target, threads, shapes, dtypes, taken=made[1])
    if LANES.get(sketch.lanes, "none") not in target.isa:
        return None
    return sketch if all(TileSketch.copy_values(sketch, found)[-1] == "pack_root" for found in sketch.reads) else None
