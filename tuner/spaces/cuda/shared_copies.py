"""Operands in shared memory: the box of a tensor that one thread block reads, fetched
by all its threads together.

The box is taken from the access map: per dimension the span of a linear index over what
the block iterates. A window's box holds its halo once; nothing is expanded. Threads
walk the box in the tensor's own order, so that loads from memory are coalesced however
the block reads afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from tuner.spaces.cuda.axes import DepthAxis, GridAxis
from tuner.spaces.program.loops import LoopId, loops_of
from tuner.spaces.program.marks import Vectorize
from tuner.spaces.program.program import (
    Bind,
    Block,
    Buffer,
    ComputeAt,
    Fuse,
    SplitLoop,
    StageInRegisters,
    Step,
    StorageAlign,
    ThreadAxis,
)
from tuner.spaces.program.tiles import add, constant, times
from tuner.spaces.rewrite.access import Access, Linear, in_bounds, linear
from tuner.target.cuda import VECTOR_BYTES
from tuner.workload.expression import Axis, Const, DType, Read, Scalar, Select, Var


@dataclass(frozen=True, slots=True)
class Fetch:
    """A copy of a box, before it is placed."""

    block: Block
    buffer: Buffer
    read: Read  # what the nest reads instead, in the nest's iterators
    box: tuple[Axis, ...]  # the copy's loops over the box, the tensor's last dimension last
    order: tuple[int, ...]  # dimensions of the box as they lie in shared memory
    width: int  # elements of one load
    pad: int  # elements that rows in shared memory are apart more than they are long

    @property
    def straight(self) -> bool:
        """Whether elements that are neighbours in the tensor are neighbours in shared memory."""
        return self.order[-1] == len(self.box) - 1

    def shared_out(
        self, threads: tuple[tuple[ThreadAxis, int], ...]
    ) -> tuple[tuple[ThreadAxis, int], ...]:
        """The thread axes in the order in which loads are dealt out to them, the
        fastest last: neighbours load neighbours.

        Where that would leave an outer axis out, because there are fewer loads than
        inner threads, the order is turned round. TVM takes a store and a load of the
        same index, the innermost thread's, for those of one thread whatever the other
        axes are, and puts no barrier between them (ThreadSync of 0.27). An index that
        names all axes, or not that one, is not taken so.
        """
        loads = prod(axis.extent for axis in self.box) // self.width
        inner = 1
        for _, extent in reversed(threads):
            if extent > 1 and loads <= inner and inner > 1:
                return threads[::-1]
            inner *= extent
        return threads

    def steps(
        self, loop: LoopId, threads: tuple[tuple[ThreadAxis, int], ...], *, held: bool = False
    ) -> list[Step]:
        """Places the copy under a loop and shares it among the threads, outermost
        thread axis first.

        `held`: in two parts, through registers.
        """
        name = self.block.name
        threads = self.shared_out(threads)
        parts = tuple(LoopId(name, axis) for axis, _ in threads)
        steps: list[Step] = [
            ComputeAt(block=name, loop=loop),
            Fuse(loops=loops_of(name, self.box), into=LoopId(name, "all")),
            SplitLoop(
                loop=LoopId(name, "all"),
                factors=(*(extent for _, extent in threads), self.width),
                into=(LoopId(name, "step"), *parts, LoopId(name, "lanes")),
            ),
            *(Bind(loop=part, axis=axis) for part, (axis, _) in zip(parts, threads, strict=True)),
        ]
        if self.width > 1:
            steps.append(Vectorize(loop=LoopId(name, "lanes")))
        if self.pad and len(self.box) > 1:
            factor = align_factor(self.buffer.shape[-1], self.pad)
            steps.append(StorageAlign(block=name, dimension=-2, factor=factor, offset=self.pad))
        if held:
            steps.append(StageInRegisters(block=name))
        return steps


def fetchable(found: Access) -> bool:
    """Whether the box of a read is known: its indices are linear and none is itself
    read from a tensor."""
    return (
        bool(found.axes)
        and not found.gathered
        and all(linear(index) is not None for index in found.read.indices)
    )


def box_shape(read: Read, spans: Mapping[str, int]) -> tuple[int, ...]:
    """Elements of each dimension that a block reads; `spans`: points of each iterator
    within the block."""
    return tuple(
        1 + sum(abs(value) * (spans[name] - 1) for name, value in form.coefficients.items())
        for form in _forms(read)
    )


def fetch(
    name: str,
    found: Access,
    spatial: tuple[GridAxis, ...],
    reduction: tuple[DepthAxis, ...],
    shape: tuple[int, ...],
    dtype: DType,
    *,
    turned: bool,
    width: int,
    padded: bool,
) -> Fetch:
    """The copy of one read.

    `turned`: dimensions that the reduction moves along come first. `width`: elements of
    a load, at most.
    """
    parts: dict[str, GridAxis | DepthAxis] = {part.axis.name: part for part in spatial}
    parts |= {part.axis.name: part for part in reduction}
    spans = _spans(spatial, reduction)
    extents = box_shape(found.read, spans)
    box = tuple(Axis(name=f"d{number}", extent=extent) for number, extent in enumerate(extents))
    levels = tuple(parts[axis].outer for axis in parts if axis in found.axes)
    forms = _forms(found.read)
    low = [
        sum(value * (spans[axis] - 1) for axis, value in form.coefficients.items() if value < 0)
        for form in forms
    ]
    source = tuple(
        add(
            _sum(
                form, {axis: parts[axis].base for axis in form.coefficients}, form.constant + least
            ),
            Var(axis.name),
        )
        for form, least, axis in zip(forms, low, box, strict=True)
    )
    here = tuple(
        _sum(form, {axis: parts[axis].within for axis in form.coefficients}, -least)
        for form, least in zip(forms, low, strict=True)
    )
    overruns = any(part.counts is not None and part.axis.name in found.axes for part in reduction)
    # A read under a condition of the stage may be out of bounds where that fails; the
    # copy does not know it.
    loose = (
        in_bounds(
            found.read.indices, shape, {axis: part.axis.extent for axis, part in parts.items()}
        )
        is not None
    )
    body: Scalar = Read(found.read.tensor, source)
    if found.read.pad is not None or overruns or loose:
        inside = in_bounds(source, shape, {axis.name: axis.extent for axis in (*levels, *box)})
        body = body if inside is None else Select(inside, body, found.read.pad or Const(0, dtype))
    order = (
        _order(forms, {part.axis.name for part in reduction}) if turned else tuple(range(len(box)))
    )
    ahead = tuple(Var(axis.name) for axis in levels)
    block = Block(
        name=name,
        axes=(*levels, *box),
        buffer=name,
        indices=(*ahead, *(Var(box[place].name) for place in order)),
        body=body,
    )
    fits = (
        1 if isinstance(body, Select) else load_width(found.read, shape, extents, parts, low, width)
    )
    straight = order[-1] == len(box) - 1
    return Fetch(
        block=block,
        buffer=Buffer(
            name=name,
            shape=(*(axis.extent for axis in levels), *(extents[place] for place in order)),
            dtype=dtype,
            scope="shared",
        ),
        read=Read(name, (*ahead, *(here[place] for place in order))),
        box=box,
        order=order,
        width=fits,
        pad=(fits if straight else _lanes(forms[order[-1]], parts)) if padded else 0,
    )


def _lanes(form: Linear, parts: Mapping[str, GridAxis | DepthAxis]) -> int:
    """Elements that a thread reads at once along a dimension, whose rows are to begin
    at multiples of them."""
    moving = [parts[axis] for axis in form.coefficients]
    return max((part.lanes for part in moving if isinstance(part, GridAxis)), default=1)


def load_width(
    read: Read,
    shape: tuple[int, ...],
    extents: tuple[int, ...],
    parts: Mapping[str, GridAxis | DepthAxis],
    low: list[int],
    width: int,
) -> int:
    """The widest aligned load, at most `width` elements: every box must begin, and
    every row go on, at a multiple of it."""
    form = _forms(read)[-1]
    while width > 1:
        starts = all(
            value % width == 0
            or (
                part.starts_at_multiples_of(width)
                if isinstance(part, GridAxis)
                else part.depth % width == 0
            )
            for part, value in ((parts[axis], value) for axis, value in form.coefficients.items())
        )
        if (
            starts
            and (form.constant + low[-1]) % width == 0
            and shape[-1] % width == 0
            and extents[-1] % width == 0
        ):
            return width
        width //= 2
    return 1


def align_factor(row: int, pad: int) -> int:
    """What a row's stride is rounded to before `pad` is added: all 32 banks, or the
    next power of two of a shorter row."""
    factor = 2
    while factor < min(row, 32) or factor <= pad:
        factor *= 2
    return factor


def stretched(row: int, pad: int) -> int:
    """Elements from one row to the next once a row is stretched by `pad`."""
    return row + (pad - row) % align_factor(row, pad)


def box_bytes(extents: tuple[int, ...], itemsize: int, lanes: int) -> int:
    """Most bytes a box takes in shared memory, whichever dimension comes last and
    however rows are stretched.

    `lanes`: most elements that a thread reads at once along any dimension. Rows are
    stretched by the elements of a load, or of such a read, both powers of two and no
    longer than a row.
    """
    size = prod(extents)
    if len(extents) < 2:
        return size * itemsize
    pads = [1 << power for power in range(max(lanes, VECTOR_BYTES // itemsize).bit_length())]
    return (
        max(size // row * stretched(row, pad) for row in extents for pad in pads if pad <= row)
        * itemsize
    )


def _spans(spatial: tuple[GridAxis, ...], reduction: tuple[DepthAxis, ...]) -> dict[str, int]:
    return {part.axis.name: part.block for part in spatial} | {
        part.axis.name: part.depth for part in reduction
    }


def _forms(read: Read) -> list[Linear]:
    return [form for form in map(linear, read.indices) if form is not None]


def _sum(form: Linear, values: Mapping[str, Scalar], offset: int) -> Scalar:
    total: Scalar = constant(offset)
    for axis, factor in form.coefficients.items():
        total = add(times(values[axis], factor), total)
    return total


def turned_forms(read: Read, reduced: set[str]) -> list[Linear]:
    """Indices of a read in the order in which a turned box holds its dimensions."""
    forms = _forms(read)
    return [forms[place] for place in _order(forms, reduced)]


def turns_around(read: Read, reduced: set[str]) -> bool:
    """Whether a turned box is another than a plain one."""
    return _order(_forms(read), reduced) != tuple(range(len(read.indices)))


def _order(forms: list[Linear], reduced: set[str]) -> tuple[int, ...]:
    """Dimensions the reduction moves along first, those only spatial iterators move along last."""
    return tuple(
        sorted(
            range(len(forms)),
            key=lambda place: not any(axis in reduced for axis in forms[place].coefficients),
        )
    )
