"""The axis that vectors of each member of a fused group go along, and what that makes
copies of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from tuner.spaces.program.program import LARGEST_SHUFFLED_STRIDE
from tuner.spaces.rewrite.access import Access, access
from tuner.spaces.rewrite.groups import FusedGroup, TileGroup
from tuner.spaces.rewrite.regions import reads_of
from tuner.target.target import Target
from tuner.workload.affine import linear
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import Axis, Read, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLayout:
    """One member's vectors and register tiles."""

    vector: Axis
    tiled: Axis | None  # the other axis of a register tile of a reduction
    # whether operands that move with the vectors are used again along the tiled axis
    reuses: bool
    lanes: int  # of the accumulator's dtype in a register


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedLayout:
    """Of all members, by their outputs."""

    members: Mapping[str, MemberLayout]
    copied: frozenset[tuple[str, Read]]  # reads of inputs whose elements are laid out anew
    # of inputs in place that register tiles of several rows use again, a row of vectors at a time
    packable: frozenset[tuple[str, Read]]


def layout_of(
    group: FusedGroup, shapes: Mapping[str, tuple[int, ...]], target: Target
) -> FusedLayout:
    """Readers choose first: where their vectors go along what they read, so do its own."""
    inside = {member.name for member in group.members}
    members: dict[str, MemberLayout] = {}
    given: dict[str, Axis] = {}
    copied: set[tuple[str, Read]] = set()
    packable: set[tuple[str, Read]] = set()
    for member in reversed(group.members):
        anchor = member.anchor
        dtype = anchor.accumulator if anchor.reducer else anchor.dtype
        lanes = max(target.vector_bytes // DTYPE_BYTES[dtype], 1)
        read_accesses = [access(r, shapes[r.tensor], anchor.extents) for r in reads_of(member)]
        outside = [each for each in read_accesses if each.read.tensor not in inside]
        vector = given.get(member.name) or _vector(member, outside, shapes, lanes)
        members[member.name] = _layout(anchor, vector, read_accesses, lanes)
        for each in read_accesses:
            if each.read.tensor in inside:
                if (along := _dimension(each.read, vector.name)) is not None:
                    source = next(m for m in group.members if m.name == each.read.tensor)
                    given.setdefault(source.name, source.output.axes[along])
            elif not _in_place(each, vector.name) and _is_linear(each):
                copied.add((member.name, each.read))
            elif _is_packable(each, anchor, members[member.name]):
                packable.add((member.name, each.read))
    return FusedLayout(members=members, copied=frozenset(copied), packable=frozenset(packable))


def _vector(
    member: TileGroup,
    outside: list[Access],
    shapes: Mapping[str, tuple[int, ...]],
    lanes: int,
) -> Axis:
    """The axis that fills vectors and for which least has to be copied; of several the last."""
    order = [axis.name for axis in member.output.axes]

    def rank(axis: Axis) -> tuple[int, int, int]:
        moved = [each for each in outside if not _in_place(each, axis.name)]
        elements = sum(
            prod(shapes[each.read.tensor]) if _is_linear(each) else member.anchor.points
            for each in moved
        )
        return (-min(axis.extent, lanes), elements, -order.index(axis.name))

    return min(member.anchor.axes, key=rank)


def _layout(anchor: Stage, vector: Axis, accesses: list[Access], lanes: int) -> MemberLayout:
    vectors = [each for each in accesses if vector.name in each.axes]
    others = [axis for axis in anchor.axes if axis != vector and axis.extent > 1]
    tiled = max(
        others,
        key=lambda axis: (
            sum(axis.name not in each.axes for each in vectors),
            others.index(axis),
        ),
        default=None,
    )
    reuses = tiled is not None and any(tiled.name not in each.axes for each in vectors)
    return MemberLayout(vector=vector, tiled=tiled, reuses=reuses, lanes=lanes)


def _in_place(each: Access, axis: str) -> bool:
    """Whether lanes along the axis lie side by side in what is read, or a few places apart."""
    stride = each.stride(axis)
    return stride is not None and 0 <= stride <= LARGEST_SHUFFLED_STRIDE


def _is_packable(each: Access, anchor: Stage, layout: MemberLayout) -> bool:
    """Whether vectors of a read, for one term after another, lie rows of a tensor apart."""
    if each.stride(layout.vector.name) != 1 or each.padded or not _is_linear(each):
        return False
    return (
        layout.tiled is not None
        and layout.tiled.name not in each.axes
        and any((each.stride(axis.name) or 0) > layout.lanes for axis in anchor.reduce_axes)
    )


def _is_linear(each: Access) -> bool:
    return all(linear(index) is not None for index in each.read.indices)


def _dimension(read: Read, axis: str) -> int | None:
    """The dimension that an axis moves in by small steps; None of several or none."""
    moved = [
        (place, form.coefficient(axis))
        for place, form in enumerate(map(linear, read.indices))
        if form is not None and form.coefficient(axis)
    ]
    if len(moved) != 1 or not 0 < moved[0][1] <= LARGEST_SHUFFLED_STRIDE:
        return None
    return moved[0][0]


def last_dimension(read: Read, axis: str) -> int:
    """The dimension of a copy that is laid out last: that along which vectors go."""
    moved = _dimension(read, axis)
    return len(read.indices) - 1 if moved is None else moved
