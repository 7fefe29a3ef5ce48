"""Knobs of the row sketch for GPUs: threads along rows and columns with what is kept,
as far as a block holds them together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.core.space import Knob, Value
from tuner.spaces.cuda.axes import GridAxis
from tuner.spaces.cuda.facts import KernelFacts, KernelKind
from tuner.spaces.cuda.limits import LEAST_THREADS, OTHER_REGISTERS, Footprint, widest
from tuner.spaces.cuda.rows import CudaRowNest, CudaRowPlan, Keeping, once, optional, repeated
from tuner.spaces.program.nest import Nest
from tuner.spaces.rewrite.access import linear
from tuner.spaces.rewrite.groups import RowGroup
from tuner.target.cuda import WARP
from tuner.workload.expression import DTYPE_BYTES, Axis, Read, reads

THREADS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # along the column
ROWS = (1, 2, 4, 8, 16, 32)  # of a block
MAX_KEPT = 64  # 32-bit registers of a thread for kept rows
MAX_OVERLAP = 0.25  # rows computed twice, as a share


@dataclass(frozen=True)
class CudaRowSketch:
    """The row sketch of one group."""

    group: RowGroup
    context: SpaceContext

    name = "rows"

    @property
    def prefix(self) -> str:
        return f"{self.group.name}.{self.name}"

    @cached_property
    def rows(self) -> tuple[Axis, ...]:
        return self.group.rows or (Axis(name="unit", extent=1),)

    @cached_property
    def _tiled(self) -> Axis:
        """The row axis with threads: the innermost that has any length."""
        return next((axis for axis in reversed(self.rows) if axis.extent > 1), self.rows[-1])

    @cached_property
    def _kept_bytes(self) -> int:
        """Bytes of one element of everything along the column that is kept."""
        loads = sum(
            DTYPE_BYTES[self.context.dtypes[read.tensor]] for read in repeated(self.group.stages)
        )
        return loads + sum(DTYPE_BYTES[stage.dtype] for stage in optional(self.group))

    @cached_property
    def _once_bytes(self) -> int:
        """Bytes of one element of everything along the column that only the output reads."""
        return sum(
            DTYPE_BYTES[self.context.dtypes[read.tensor]] for read in once(self.group.stages)
        )

    @cached_property
    def _lanes(self) -> int:
        """Elements of the widest load that is aligned in every row that is read or
        written along the column."""
        extent = self.group.column.extent
        found = [
            read for stage in self.group.stages for read in reads(stage.body) if self._moves(read)
        ]
        bytes_ = max((DTYPE_BYTES[self.context.dtypes[read.tensor]] for read in found), default=1)
        wide = widest(max(bytes_, DTYPE_BYTES[self.group.output.dtype]))
        while wide > 1 and (extent % wide or not all(self._aligned(read, wide) for read in found)):
            wide //= 2
        return wide

    def _moves(self, read: Read) -> bool:
        last = linear(read.indices[-1]) if read.indices else None
        return last is None or last.coefficient(self.group.column.name) != 0

    def _aligned(self, read: Read, width: int) -> bool:
        """Whether all rows of what is read begin at a multiple of the width."""
        if not read.indices:
            return True
        last = linear(read.indices[-1])
        if (
            last is None
            or read.pad is not None
            or self.context.shapes[read.tensor][-1] % width
            or last.constant % width
        ):
            return False
        others = (
            value for name, value in last.coefficients.items() if name != self.group.column.name
        )
        return last.coefficient(self.group.column.name) in (0, 1) and all(
            value % width == 0 for value in others
        )

    # --- knobs
    # ------------------------------------------------------------------------------

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        knob = Knob(name=f"{self.prefix}.shape", values=self._values)
        return (knob,) if len(knob.values) > 1 else ()

    @cached_property
    def _values(self) -> tuple[Value, ...]:
        """(rows, threads along the column, lanes, and what becomes of rows read twice).

        They are read again (0), kept in registers (1) or in shared memory (2), or in
        registers with what the output alone reads loaded before everything else, too
        (3).
        """
        found = list(self._fitting())
        least = min(LEAST_THREADS, max(rows * threads for rows, threads, _, _ in found))
        return tuple(one for one in found if one[0] * one[1] >= least)

    def _fitting(self) -> Iterator[tuple[int, int, int, int]]:
        extent, rows = self.group.column.extent, self._tiled.extent
        widths = [lanes for lanes in (1, 2, 4, 8, 16) if lanes <= self._lanes]
        for count, threads, lanes, keeping in product(ROWS, THREADS, widths, range(len(KEEPING))):
            fits = (
                threads * lanes <= extent
                and count <= rows
                and -(-rows // count) * count <= (1 + MAX_OVERLAP) * rows
            )
            # Several rows of less than a warp share one: a reduction across part of a
            # warp costs no less than across all of it.
            narrow = threads < WARP and 2 * threads * lanes <= extent
            if not fits or narrow or (keeping in (1, 2) and not self._kept_bytes):
                continue
            if keeping == AHEAD and (lanes == 1 or not self._once_bytes):
                continue
            value = (count, threads, lanes, keeping)
            if self.footprint(value).fault is None and self._kept_words(value) <= MAX_KEPT:
                yield value

    def _steps(self, value: tuple[int, ...]) -> int:
        return -(-self.group.column.extent // (value[1] * value[2]))

    def _kept_words(self, value: tuple[int, ...]) -> int:
        """32-bit registers of a thread for what it keeps."""
        held = (
            (self._kept_bytes + (self._once_bytes if value[3] == AHEAD else 0))
            * self._steps(value)
            * value[2]
        )
        return -(-held // 4) if KEEPING[value[3]] == "local" else 0

    def footprint(self, value: tuple[int, ...]) -> Footprint:
        rows, threads, lanes, keeping = value
        kept = (
            self._kept_bytes * rows * threads * lanes * self._steps(value)
            if KEEPING[keeping] == "shared"
            else 0
        )
        # Across warps a reduction passes one value a warp through shared memory; 8
        # bytes each, of every reduction.
        reductions = sum(stage.reducer is not None for stage in self.group.stages)
        return Footprint(
            threads=(threads, rows),
            registers=OTHER_REGISTERS + 2 * lanes + self._kept_words(value),
            shared_bytes=kept + reductions * 8 * rows * max(threads, WARP),
        )

    # --- meaning
    # ------------------------------------------------------------------------------

    @property
    def facts(self) -> KernelFacts:
        return KernelFacts(
            kind=KernelKind.ROWS,
            group=self.group,
            owner=self.prefix,
            knobs=self.knobs,
            footprint=self.footprint,
        )

    def nest(self, config: Mapping[str, Value]) -> Nest:
        """Raises IllegalSchedule where a block of the config cannot be launched."""
        return CudaRowNest(
            self.group, self.plan(config), self.context.shapes, self.context.dtypes
        ).build()

    def plan(self, config: Mapping[str, Value]) -> CudaRowPlan:
        """The config decoded; a knob with a single value is not in it."""
        value = config[f"{self.prefix}.shape"] if self.knobs else self._values[0]
        assert isinstance(value, tuple)
        self.footprint(value).check()
        count, threads, lanes, keeping = value
        return CudaRowPlan(
            rows=tuple(
                GridAxis(axis=axis, threads=count if axis == self._tiled else 1)
                for axis in self.rows
            ),
            column=self.group.column,
            threads=threads,
            lanes=lanes,
            keeping=KEEPING[keeping],
            ahead=keeping == AHEAD,
        )


KEEPING: tuple[Keeping, ...] = ("recompute", "local", "shared", "local")
AHEAD = 3  # of these
