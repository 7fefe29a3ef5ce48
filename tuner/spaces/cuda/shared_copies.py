"""Operands in shared memory: the box of a tensor that one thread block reads, copied by
all its threads together.

The box is taken from the access map: for each dimension the span of a linear index over
what the block iterates. A window's box holds its halo once; nothing is expanded. Threads
walk the box in the tensor's own order, so that loads from memory are coalesced however
the block reads afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from math import prod

from tuner.spaces.cuda.axes import DepthAxis, GridAxis
from tuner.spaces.cuda.copy_mode import SharedCopy
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
from tuner.spaces.rewrite.access import Access, in_bounds_condition
from tuner.target.cuda import VECTOR_BYTES
from tuner.workload.affine import Affine, linear
from tuner.workload.dtypes import DType
from tuner.workload.expression import Axis, Const, Read, Scalar, Select, Var


@dataclass(frozen=True, slots=True)
class BoxCopy:
    """A copy of a box, before it is placed."""

    block: Block
    buffer: Buffer
    read: Read  # what the nest reads instead, in the nest's iterators
    box: tuple[Axis, ...]  # the copy's loops over the box, the tensor's last dimension last
    order: tuple[int, ...]  # dimensions of the box as they lie in shared memory
    width: int  # elements of one load
    pad: int  # elements that rows in shared memory are apart more than they are long

    @property
    def keeps_rows(self) -> bool:
        """Whether elements adjacent in the tensor are adjacent in shared memory."""
        return self.order[-1] == len(self.box) - 1

    def thread_order(
        self, threads: tuple[tuple[ThreadAxis, int], ...]
    ) -> tuple[tuple[ThreadAxis, int], ...]:
        """The thread axes in the order in which loads are dealt out to them, the fastest
        last: adjacent threads load adjacent elements.

        Where that would leave an outer axis out, because there are fewer loads than
        inner threads, the order is reversed. TVM takes a store and a load of the same
        index, the innermost thread's, for those of one thread whatever the other axes
        are, and puts no barrier between them (ThreadSync of 0.27). An index that names
        all axes, or not that one, is not mistaken so.
        """
        loads = prod(axis.extent for axis in self.box) // self.width
        inner = 1
        for _, extent in reversed(threads):
            if extent > 1 and loads <= inner and inner > 1:
                return threads[::-1]
            inner *= extent
        return threads

    def steps(
        self,
        loop: LoopId,
        threads: tuple[tuple[ThreadAxis, int], ...],
        *,
        staged_in_registers: bool = False,
    ) -> list[Step]:
        """Places the copy under a loop and deals it out to the threads.

        `threads`: the block's thread axes, outermost first. `staged_in_registers`:
        the copy is in two parts, from memory to registers and on to shared memory.
        """
        name = self.block.name
        threads = self.thread_order(threads)
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
        if staged_in_registers:
            steps.append(StageInRegisters(block=name))
        return steps


def has_known_box(operand: Access) -> bool:
    """Whether the box of a read is known: its indices are linear and none is itself
    read from a tensor."""
    return (
        bool(operand.axes)
        and not operand.gathered
        and all(linear(index) is not None for index in operand.read.indices)
    )


def box_shape(read: Read, spans: Mapping[str, int]) -> tuple[int, ...]:
    """Elements of each dimension that a block reads.

    `spans`: points of each iterator within the block.
    """
    return tuple(
        1 + sum(step * (spans[name] - 1) for name, step in steps) for steps in _steps(read)
    )


@cache
def _steps(read: Read) -> tuple[tuple[tuple[str, int], ...], ...]:
    """For each dimension of a read the iterators that move along it, and how far.

    Kept, as every tile of a space asks for the same reads.
    """
    return tuple(
        tuple((name, abs(factor)) for name, factor in form.coefficients.items())
        for form in _forms(read)
    )


@dataclass(frozen=True)
class OperandBox:
    """The part of one operand that a block of the nest reads at a time."""

    operand: Access
    spatial: tuple[GridAxis, ...]
    reduction: tuple[DepthAxis, ...]
    shape: tuple[int, ...]  # of the operand's tensor
    dtype: DType

    def copy(self, name: str, mode: SharedCopy) -> BoxCopy:
        """The copy of the box; `name`: of its block and its buffer."""
        order = (
            _transposed_order(self._forms, {part.axis.name for part in self.reduction})
            if mode.transposed
            else tuple(range(len(self._box)))
        )
        body = self._body()
        width = 1 if isinstance(body, Select) else self._load_width(mode.width)
        levels = tuple(Var(axis.name) for axis in self._levels)
        block = Block(
            name=name,
            axes=(*self._levels, *self._box),
            buffer=name,
            indices=(*levels, *(Var(self._box[dimension].name) for dimension in order)),
            body=body,
        )
        buffer = Buffer(
            name=name,
            shape=(
                *(axis.extent for axis in self._levels),
                *(self._extents[dimension] for dimension in order),
            ),
            dtype=self.dtype,
            scope="shared",
        )
        offsets = self._offsets()
        keeps_rows = order[-1] == len(self._box) - 1
        read_width = width if keeps_rows else self._lanes_along(self._forms[order[-1]])
        return BoxCopy(
            block=block,
            buffer=buffer,
            read=Read(name, (*levels, *(offsets[dimension] for dimension in order))),
            box=self._box,
            order=order,
            width=width,
            pad=read_width if mode.padded else 0,
        )

    @cached_property
    def _parts(self) -> dict[str, GridAxis | DepthAxis]:
        """The nest's axes by name."""
        parts: dict[str, GridAxis | DepthAxis] = {part.axis.name: part for part in self.spatial}
        return parts | {part.axis.name: part for part in self.reduction}

    @cached_property
    def _forms(self) -> list[Affine]:
        return _forms(self.operand.read)

    @cached_property
    def _extents(self) -> tuple[int, ...]:
        return box_shape(self.operand.read, self._spans)

    @cached_property
    def _spans(self) -> dict[str, int]:
        return spans(self.spatial, self.reduction)

    @cached_property
    def _box(self) -> tuple[Axis, ...]:
        """The copy's loops over the box."""
        return tuple(
            Axis(name=f"d{dimension}", extent=extent)
            for dimension, extent in enumerate(self._extents)
        )

    @cached_property
    def _levels(self) -> tuple[Axis, ...]:
        """The nest's loops over boxes."""
        return tuple(part.outer for axis, part in self._parts.items() if axis in self.operand.axes)

    @cached_property
    def _lowest(self) -> list[int]:
        """The least offset of each dimension's index within the block, at most 0."""
        return [
            sum(
                factor * (self._spans[axis] - 1)
                for axis, factor in form.coefficients.items()
                if factor < 0
            )
            for form in self._forms
        ]

    def _source(self) -> tuple[Scalar, ...]:
        """Where an element of the box lies in the tensor."""
        return tuple(
            add(
                _sum(
                    form,
                    {axis: self._parts[axis].base for axis in form.coefficients},
                    form.constant + lowest,
                ),
                Var(axis.name),
            )
            for form, lowest, axis in zip(self._forms, self._lowest, self._box, strict=True)
        )

    def _offsets(self) -> tuple[Scalar, ...]:
        """Where the nest's current element lies in the box."""
        return tuple(
            _sum(form, {axis: self._parts[axis].within for axis in form.coefficients}, -lowest)
            for form, lowest in zip(self._forms, self._lowest, strict=True)
        )

    def _body(self) -> Scalar:
        """What is copied: the tensor's element, or its padding where that is outside."""
        read, source = self.operand.read, self._source()
        body: Scalar = Read(read.tensor, source)
        overruns = any(
            part.predicate is not None and part.axis.name in self.operand.axes
            for part in self.reduction
        )
        # A read under a condition of the stage may be out of bounds where that fails;
        # the copy does not have the condition.
        extents = {axis: part.axis.extent for axis, part in self._parts.items()}
        unguarded = in_bounds_condition(read.indices, self.shape, extents) is not None
        if read.pad is None and not overruns and not unguarded:
            return body
        loops = {axis.name: axis.extent for axis in (*self._levels, *self._box)}
        inside = in_bounds_condition(source, self.shape, loops)
        return body if inside is None else Select(inside, body, read.pad or Const(0, self.dtype))

    def _load_width(self, width: int) -> int:
        """The widest aligned load, at most `width` elements: every box must begin, and
        every row go on, at a multiple of it."""
        form = self._forms[-1]
        first = form.constant + self._lowest[-1]
        while width > 1:
            rows = (first, self.shape[-1], self._extents[-1])
            if self._starts_at_multiples_of(form, width) and not any(
                elements % width for elements in rows
            ):
                return width
            width //= 2
        return 1

    def _starts_at_multiples_of(self, form: Affine, width: int) -> bool:
        """Whether every block's part of the index is a multiple of `width`."""
        for axis, factor in form.coefficients.items():
            part = self._parts[axis]
            starts = (
                part.starts_at_multiples_of(width)
                if isinstance(part, GridAxis)
                else part.depth % width == 0
            )
            if factor % width and not starts:
                return False
        return True

    def _lanes_along(self, form: Affine) -> int:
        """Elements that a thread reads at once along a dimension, whose rows are to begin
        at multiples of them."""
        moving = [self._parts[axis] for axis in form.coefficients]
        return max((part.lanes for part in moving if isinstance(part, GridAxis)), default=1)


def align_factor(row: int, pad: int) -> int:
    """What a row's stride is rounded to before `pad` is added: all 32 banks, or the
    next power of two of a shorter row."""
    factor = 2
    while factor < min(row, 32) or factor <= pad:
        factor *= 2
    return factor


def padded_stride(row: int, pad: int) -> int:
    """Elements from one row to the next once a row is stretched by `pad`."""
    return row + (pad - row) % align_factor(row, pad)


@cache  # tiles of a space have few different boxes
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
        max(size // row * padded_stride(row, pad) for row in extents for pad in pads if pad <= row)
        * itemsize
    )


@dataclass(frozen=True)
class BoxSizes:
    """Bytes of the boxes that blocks read of an operand. Tiles with the same points along
    its iterators have the same box, whose sizes are computed once."""

    read: Read
    itemsize: int
    _sizes: dict[tuple[int, ...], tuple[int, int]] = field(default_factory=dict, compare=False)

    @cached_property
    def _iterators(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for steps in _steps(self.read) for name, _ in steps))

    def sizes(self, spans: Mapping[str, int], lanes: int) -> tuple[int, int]:
        """Bytes of the box, and the most that it takes in shared memory (`box_bytes`).

        `spans`: points of each iterator within the block.
        """
        key = (lanes, *(spans[name] for name in self._iterators))
        if key not in self._sizes:
            box = box_shape(self.read, spans)
            stretched = box_bytes(box, self.itemsize, lanes)
            self._sizes[key] = prod(box) * self.itemsize, stretched
        return self._sizes[key]


def spans(spatial: tuple[GridAxis, ...], reduction: tuple[DepthAxis, ...]) -> dict[str, int]:
    """Points of each axis within a block, by the axis's name."""
    return {part.axis.name: part.block for part in spatial} | {
        part.axis.name: part.depth for part in reduction
    }


def transposed_forms(read: Read, reduced: set[str]) -> list[Affine]:
    """Indices of a read in the order in which a transposed box holds its dimensions."""
    forms = _forms(read)
    return [forms[dimension] for dimension in _transposed_order(forms, reduced)]


def transposition_differs(read: Read, reduced: set[str]) -> bool:
    """Whether a transposed box is laid out differently from a plain one."""
    return _transposed_order(_forms(read), reduced) != tuple(range(len(read.indices)))


def _forms(read: Read) -> list[Affine]:
    return [form for form in map(linear, read.indices) if form is not None]


def _sum(form: Affine, values: Mapping[str, Scalar], offset: int) -> Scalar:
    total: Scalar = constant(offset)
    for axis, factor in form.coefficients.items():
        total = add(times(values[axis], factor), total)
    return total


def _transposed_order(forms: list[Affine], reduced: set[str]) -> tuple[int, ...]:
    """Dimensions that the reduction moves along first, those that only spatial iterators
    move along last."""
    return tuple(
        sorted(
            range(len(forms)),
            key=lambda dimension: (
                not any(axis in reduced for axis in forms[dimension].coefficients)
            ),
        )
    )
