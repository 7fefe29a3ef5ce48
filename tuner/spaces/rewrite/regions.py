"""What a tile of one stage needs of the others: regions of tensors, from access maps alone.

The last member of a fused group is computed tile by tile. The first element of a tile along
an axis is a symbol. Indices that are linear in iterators make of it the first element that
is read along each dimension of another member, and of the tile's extents how many. So it
goes on from reader to what is read.

Reads with padding go through a window: a copy of the region with its padding made real, so
that loops over it have neither conditions nor borders. The region that is computed for it
is moved back into the tensor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from tuner.spaces.rewrite.access import in_bounds_condition
from tuner.spaces.rewrite.groups import FusedGroup, TileGroup
from tuner.workload.affine import Affine, linear
from tuner.workload.expression import Axis, Const, Read, Var, reads


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A box of a tensor, or of a stage's iteration space: `start <= index < start + extent`."""

    starts: tuple[Affine, ...]  # in terms of symbols
    extents: tuple[int, ...]

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols with which the region moves."""
        return frozenset(name for start in self.starts for name in start.coefficients)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A symbol: a first element that is moved back to between 0 and a limit."""

    first: Affine
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A copy of what a member reads of a tensor; elements beyond the tensor are the padding."""

    name: str
    reader: str  # the member
    tensor: str
    pad: Const | None  # None where no read leaves the tensor
    region: Region
    reads: frozenset[Read]  # that go through it


@dataclass(frozen=True, slots=True, kw_only=True)
class Regions:
    """Of one tile of a fused group."""

    members: Mapping[str, Region]  # by a member's output, of the anchor's axes in their order
    windows: tuple[Window, ...]
    moved: Mapping[str, Moved] = field(default_factory=dict)  # by symbol

    def windows_of(self, reader: str) -> tuple[Window, ...]:
        """The windows that a member reads."""
        return tuple(window for window in self.windows if window.reader == reader)

    def depends_on(self, region: Region) -> frozenset[str]:
        """The axes of the root with whose tiles a region moves."""
        axes: set[str] = set()
        waiting = list(region.symbols)
        while waiting:
            name = waiting.pop()
            if name in self.moved:
                waiting += self.moved[name].first.coefficients
            else:
                axes.add(name)
        return frozenset(axes)


def first_of(axis: str) -> str:
    """The symbol of the first element of a tile along an axis of the root; no axis has its
    name."""
    return f"_first_{axis}"


def axis_of(symbol: str) -> str:
    """The axis of the root of which a symbol is the first element."""
    return symbol.removeprefix("_first_")


def regions_of(
    group: FusedGroup,
    shapes: Mapping[str, tuple[int, ...]],
    tile: Mapping[str, int],
    copied: Collection[tuple[str, Read]] = (),
    packed: Collection[tuple[str, Read]] = (),
) -> Regions | None:
    """The regions for a tile with these extents; None where reads do not move together.

    `tile` has an extent for each axis of the root, those that it reduces over included.
    `copied` are reads of inputs, each with its member, that go through windows too. Where
    tiles side by side read the same, these are of the whole tensor; of `packed` ones each
    tile has its own.
    """
    return _Derivation(group, shapes, frozenset(copied), frozenset(packed)).regions(tile)


@dataclass(frozen=True)
class _Need:
    """What one reader needs of a tensor."""

    region: Region
    beyond: bool  # whether it may leave the tensor


class _Derivation:
    """The derivation of all regions of one group, readers first."""

    def __init__(
        self,
        group: FusedGroup,
        shapes: Mapping[str, tuple[int, ...]],
        copied: frozenset[tuple[str, Read]],
        packed: frozenset[tuple[str, Read]],
    ) -> None:
        self.group, self.shapes = group, shapes
        self.copied, self.packed = copied | packed, packed
        self.inside = {member.name for member in group.members}
        self.members: dict[str, Region] = {}
        self.windows: list[Window] = []
        self.moved: dict[str, Moved] = {}
        self.needs: dict[str, list[_Need]] = {name: [] for name in self.inside}

    def regions(self, tile: Mapping[str, int]) -> Regions | None:
        root = self.group.root
        boxes = {axis.name: _tile(axis, tile[axis.name]) for axis in root.anchor.reduce_axes}
        for member in reversed(self.group.members):
            axes = member.anchor.axes
            if member is root:
                box = {axis.name: _tile(axis, tile[axis.name]) for axis in axes}
            else:
                region = self._united(member)
                if region is None:
                    return None
                sides = zip(region.starts, region.extents, strict=True)
                box = dict(zip((axis.name for axis in axes), sides, strict=True))
                boxes = {
                    axis.name: (Affine({}, 0), axis.extent) for axis in member.anchor.reduce_axes
                }
            self.members[member.name] = Region(
                starts=tuple(box[axis.name][0] for axis in axes),
                extents=tuple(box[axis.name][1] for axis in axes),
            )
            if not self._add_needs(member, box | boxes):
                return None
        return Regions(members=self.members, windows=tuple(self.windows), moved=self.moved)

    def _add_needs(self, member: TileGroup, box: Mapping[str, tuple[Affine, int]]) -> bool:
        """What a member reads; False where a read of another member is not linear."""
        shared: dict[tuple[str, object, object], list[tuple[Read, Region]]] = {}
        extents = member.anchor.extents
        for read in reads_of(member):
            is_member = read.tensor in self.inside
            shape = self.shapes[read.tensor]
            beyond = in_bounds_condition(read.indices, shape, extents) is not None
            padded = read.pad is not None and beyond
            key = (member.name, read)
            if not (is_member or padded or key in self.copied):
                continue
            region = read_region(read, box)
            if region is not None and key in self.packed and region.extents[-1] == shape[-1]:
                continue  # whose rows would lie as far apart
            if region is None:
                if is_member:
                    return False
                continue  # gathered, in place
            if padded or not is_member:
                steps = tuple(tuple(sorted(s.coefficients.items())) for s in region.starts)
                place = (read.tensor, read.pad if padded else None, (padded, steps))
                shared.setdefault(place, []).append((read, region))
            else:
                self.needs[read.tensor].append(_Need(region, beyond))
        for places in shared.values():
            self._add_window(member, places)
        return True

    def _add_window(self, member: TileGroup, places: list[tuple[Read, Region]]) -> None:
        read = places[0][0]
        region = union([region for _, region in places])
        assert region is not None  # reads that move alike
        beyond = in_bounds_condition(read.indices, self.shapes[read.tensor], member.anchor.extents)
        padded = read.pad is not None and beyond is not None
        if read.tensor in self.inside:
            self.needs[read.tensor].append(_Need(region, True))
        elif (
            not padded
            and (member.name, read) not in self.packed
            and region.symbols
            and region.symbols <= _reduced_symbols(self.group)
        ):
            # Tiles side by side would all copy the same: it is copied once as a whole.
            shape = self.shapes[read.tensor]
            region = Region(starts=tuple(Affine({}, 0) for _ in shape), extents=shape)
        self.windows.append(
            Window(
                name=f"{member.name}_window{len(self.windows)}",
                reader=member.name,
                tensor=read.tensor,
                pad=read.pad if padded else None,
                region=region,
                reads=frozenset(place for place, _ in places),
            )
        )

    def _united(self, member: TileGroup) -> Region | None:
        """The region of a member: all that its readers need, moved back into its tensor.

        In the order of the anchor's axes.
        """
        needs = self.needs[member.name]
        region = union([need.region for need in needs])
        if region is None:
            return None
        starts, extents = list(region.starts), list(region.extents)
        beyond = any(need.beyond for need in needs)
        for dimension, whole in enumerate(self.shapes[member.name]):
            if extents[dimension] >= whole:
                starts[dimension], extents[dimension] = Affine({}, 0), whole
            elif beyond:
                symbol = f"_moved_{member.name}_{dimension}"
                self.moved[symbol] = Moved(
                    first=starts[dimension], limit=whole - extents[dimension]
                )
                starts[dimension] = Affine.of_iterators({symbol: 1}, 0)
        places = [member.output.axes.index(axis) for axis in member.anchor.axes]
        return Region(
            starts=tuple(starts[place] for place in places),
            extents=tuple(extents[place] for place in places),
        )


def reads_of(member: TileGroup) -> Iterator[Read]:
    """The distinct reads of a member, but that of its anchor by its epilogue."""
    bodies = [member.anchor.body]
    if member.epilogue is not None:
        bodies.append(member.epilogue.body)
    distinct = dict.fromkeys(read for body in bodies for read in reads(body))
    for read in distinct:
        if read.tensor != member.anchor.name:
            yield read


def read_region(read: Read, box: Mapping[str, tuple[Affine, int]]) -> Region | None:
    """What a read touches while iterators are in a box; None where an index is not linear."""
    starts, extents = [], []
    for index in read.indices:
        form = linear(index)
        if form is None:
            return None
        start, extent = Affine({}, form.constant), 1
        for name, step in form.coefficients.items():
            first, count = box[name]
            start += first.scaled(step)
            if step < 0:
                start += Affine({}, step * (count - 1))
            extent += abs(step) * (count - 1)
        starts.append(start)
        extents.append(extent)
    return Region(starts=tuple(starts), extents=tuple(extents))


def union(regions: list[Region]) -> Region | None:
    """The smallest box around regions that move alike; None of others, and of none."""
    if not regions:
        return None
    starts, extents = [], []
    for dimension, first in enumerate(regions[0].starts):
        forms = [region.starts[dimension] for region in regions]
        if any(form.terms != first.terms for form in forms):
            return None
        ends = [
            form.constant + region.extents[dimension]
            for form, region in zip(forms, regions, strict=True)
        ]
        low = min(form.constant for form in forms)
        starts.append(Affine(first.terms, low))
        extents.append(max(ends) - low)
    return Region(starts=tuple(starts), extents=tuple(extents))


def _tile(axis: Axis, extent: int) -> tuple[Affine, int]:
    """A tile along an axis of the root, as its first element and its extent."""
    if extent >= axis.extent:
        return Affine({}, 0), axis.extent
    return Affine.of_iterators({first_of(axis.name): 1}, 0), extent


def _reduced_symbols(group: FusedGroup) -> frozenset[str]:
    return frozenset(first_of(axis.name) for axis in group.root.anchor.reduce_axes)


def tile_starts(axis: Axis, extent: int) -> list[int]:
    """The first elements of the tiles of an axis; the last one is moved back to end with it."""
    return [min(start, axis.extent - extent) for start in range(0, axis.extent, extent)]


def placed(form: Affine, offsets: Mapping[str, Affine]) -> Affine:
    """A form with iterators replaced by forms."""
    total = Affine({}, form.constant)
    for atom, step in form.terms.items():
        replaced = offsets.get(atom.name) if isinstance(atom, Var) else None
        total += (Affine({atom: 1}, 0) if replaced is None else replaced).scaled(step)
    return total
