"""Sums of products of small numbers, two at a time: the tile sketch with one reduction axis taken in pairs.

x86 multiplies 16-bit integers pairwise and adds each pair to a 32-bit lane in one instruction (vpmaddwd; with VNNI it accumulates
too, vpdpwssd). Exact for operands of 8 bits: a pair is at most 2 * 255 * 255. AVX512-BF16 does the same with bfloat16 and sums of
float32 (vdpbf16ps), with subnormal numbers taken as zero. The factor that moves along the lanes is packed in pairs, and integers
are widened when they are loaded; the lanes of the accumulators are the vectorised axis, as in the tile sketch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tuner.spaces.cpu_products import cut, factors, shared_axes
from tuner.spaces.cpu_tile_knobs import TileSketch
from tuner.spaces.groups import TileGroup
from tuner.spaces.stages import Access, accesses, linear
from tuner.target.target import Target
from tuner.workload.expression import DType

PAIR = 2
INTEGERS = frozenset({"int8", "uint8"})
# Feature that gives the instruction for as many lanes, of integers and of bfloat16.
OF_INTEGERS: Mapping[int, str] = {16: "avx512bw", 8: "avx2"}
OF_BFLOAT16: Mapping[int, str] = {16: "avx512bf16"}


@dataclass(frozen=True)
class PairSketch(TileSketch):
    """The group's anchor has its paired axis split in two: half as many steps, and the place in a pair, `taken`."""

    inputs: frozenset[str] = frozenset()  # tensors that the kernel is given, as they lie in memory

    @property
    def name(self) -> str:
        return f"pairs_{self.vector}"

    @property
    def rate(self) -> float:
        return float(PAIR)

    def copy_values(self, found: Access) -> list[str]:
        return ["none", "pack", "pack_root"] if self._in_place(found) else ["pack", "pack_root"]

    def _in_place(self, found: Access) -> bool:
        """Whether the pairs that all lanes share can be read from where they are."""
        if self.vector in found.axes or found.padded or found.read.tensor not in self.inputs:
            return False
        last = linear(found.read.indices[-1])
        return last is not None and last.coefficient(self.taken[0]) == 1


def pair_sketch(
    group: TileGroup,
    vector: str,
    target: Target,
    threads: int,
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, DType],
    inputs: frozenset[str],
) -> PairSketch | None:
    """None where the anchor is no sum of products of 8-bit integers or bfloat16, its factors share no reduction axis, or the
    target has no such instruction."""
    anchor, found = group.anchor, accesses(group.anchor, shapes)
    operands = factors(anchor)
    if operands is None or {vector in one.axes for one in found} != {True, False}:
        return None
    narrow = {dtypes[one.tensor] for one in operands}
    features = OF_INTEGERS if narrow <= INTEGERS else OF_BFLOAT16 if narrow == {"bfloat16"} else {}
    even = sorted(reversed(shared_axes(anchor, found)), key=lambda axis: axis.extent % PAIR)
    made = next((made for axis in even if (made := cut(anchor, axis, (PAIR,), shapes, dtypes)) is not None), None)
    if made is None:
        return None
    group = replace(group, anchor=made[0])
    sketch = PairSketch(group, vector, target, threads, shapes, dtypes, taken=made[1], inputs=inputs)
    if features.get(sketch.lanes, "none") not in target.isa:
        return None
    return sketch if all(TileSketch.copy_values(sketch, found)[-1] == "pack_root" for found in sketch.reads) else None
