"""Knobs of the row sketch for GPUs: threads along rows and columns with where rows are
kept, as far as a block holds them together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from tuner.spaces.core.choice import Choice, choice
from tuner.spaces.core.roles import KnobRole
from tuner.spaces.core.space import Config
from tuner.spaces.cuda.axes import GridAxis
from tuner.spaces.cuda.block_shapes import RowShape, RowStorage, stored_shape
from tuner.spaces.cuda.facts import ComputeUnit, KernelFacts
from tuner.spaces.cuda.limits import LEAST_THREADS, OTHER_REGISTERS, Footprint, covers, widest
from tuner.spaces.cuda.rows import (
    CudaRowNest,
    CudaRowPlan,
    column_stages,
    rows_read_again,
    rows_read_once,
)
from tuner.spaces.cuda.sketch import CudaSketch
from tuner.spaces.program.nest import Nest
from tuner.spaces.rewrite.groups import RowGroup
from tuner.target.cuda import WARP
from tuner.workload.affine import linear
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import Axis, Read, reads

THREADS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # along the column
ROWS = (1, 2, 4, 8, 16, 32)  # of a block
LANES = (1, 2, 4, 8, 16)  # elements of a load
MAX_KEPT = 64  # 32-bit registers of a thread for kept rows
REDUCED_BYTES = 8  # that each warp passes through shared memory for each reduction


@dataclass(frozen=True)
class CudaRowSketch(CudaSketch[RowGroup]):
    """The row sketch of one group."""

    name = "rows"

    # --- what the group is like

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
        loads = sum(map(self._itemsize, rows_read_again(self.group.stages)))
        return loads + sum(DTYPE_BYTES[stage.dtype] for stage in column_stages(self.group))

    @cached_property
    def _preloaded_bytes(self) -> int:
        """Bytes of one element of everything along the column that only the output reads."""
        return sum(map(self._itemsize, rows_read_once(self.group.stages)))

    def _itemsize(self, read: Read) -> int:
        return DTYPE_BYTES[self.context.dtypes[read.tensor]]

    @cached_property
    def _lanes(self) -> int:
        """Elements of the widest load that is aligned in every row that is read or
        written along the column."""
        extent = self.group.column.extent
        moving = [
            read for stage in self.group.stages for read in reads(stage.body) if self._moves(read)
        ]
        itemsize = max(map(self._itemsize, moving), default=1)
        lanes = widest(max(itemsize, DTYPE_BYTES[self.group.output.dtype]))
        while lanes > 1 and (
            extent % lanes or not all(self._is_aligned(read, lanes) for read in moving)
        ):
            lanes //= 2
        return lanes

    def _moves(self, read: Read) -> bool:
        """Whether the last dimension may move with the column."""
        last = linear(read.indices[-1]) if read.indices else None
        return last is None or last.coefficient(self.group.column.name) != 0

    def _is_aligned(self, read: Read, lanes: int) -> bool:
        """Whether all rows of what is read begin at a multiple of the lanes."""
        if not read.indices:
            return True
        last, column = linear(read.indices[-1]), self.group.column.name
        if last is None or read.pad is not None:
            return False
        others = [factor for name, factor in last.coefficients.items() if name != column]
        steps = [self.context.shapes[read.tensor][-1], last.constant, *others]
        return last.coefficient(column) in (0, 1) and not any(step % lanes for step in steps)

    # --- choices

    @cached_property
    def choices(self) -> tuple[Choice[Any], ...]:
        return (self.block,)

    @cached_property
    def block(self) -> Choice[RowShape]:
        """Shapes that fit a block, without those that leave schedulers idle."""
        fitting = list(self._fitting())
        least = min(LEAST_THREADS, max(shape.rows * shape.threads for shape in fitting))
        shapes = [shape for shape in fitting if shape.rows * shape.threads >= least]
        return choice(self.prefix, KnobRole.ROW_SHAPE, shapes, stored_shape)

    def _fitting(self) -> Iterator[RowShape]:
        lanes = [count for count in LANES if count <= self._lanes]
        for rows, threads, count, storage in product(ROWS, THREADS, lanes, RowStorage):
            shape = RowShape(rows=rows, threads=threads, lanes=count, storage=storage)
            if self._is_useful(shape) and self.footprint(shape).fault is None:
                yield shape

    def _is_useful(self, shape: RowShape) -> bool:
        column = self.group.column.extent
        if shape.width > column or not covers(self._tiled.extent, shape.rows):
            return False
        # Several rows of less than a warp share one: a reduction across part of a warp
        # costs no less than across all of it.
        if shape.threads < WARP and 2 * shape.width <= column:
            return False
        if self._kept_registers(shape) > MAX_KEPT:
            return False
        match shape.storage:
            case RowStorage.REGISTERS | RowStorage.SHARED:
                return self._kept_bytes > 0
            case RowStorage.PRELOADED:
                return shape.lanes > 1 and self._preloaded_bytes > 0
            case RowStorage.RECOMPUTED:
                return True

    def _steps(self, shape: RowShape) -> int:
        return -(-self.group.column.extent // shape.width)

    def _kept_registers(self, shape: RowShape) -> int:
        """32-bit registers of a thread for what it keeps."""
        if not shape.storage.in_registers:
            return 0
        preloaded = self._preloaded_bytes if shape.storage is RowStorage.PRELOADED else 0
        kept = (self._kept_bytes + preloaded) * self._steps(shape) * shape.lanes
        return -(-kept // 4)

    def footprint(self, shape: RowShape) -> Footprint:
        """What a block of this shape takes."""
        kept = (
            self._kept_bytes * shape.rows * shape.width * self._steps(shape)
            if shape.storage is RowStorage.SHARED
            else 0
        )
        # Across warps a reduction passes one value a warp through shared memory.
        reductions = sum(stage.reducer is not None for stage in self.group.stages)
        passed = reductions * REDUCED_BYTES * shape.rows * max(shape.threads, WARP)
        return Footprint(
            threads=(shape.threads, shape.rows),
            registers=OTHER_REGISTERS + 2 * shape.lanes + self._kept_registers(shape),
            shared_bytes=kept + passed,
        )

    # --- meaning

    @cached_property
    def facts(self) -> KernelFacts:
        return KernelFacts(
            owner=self.prefix,
            group=self.group.name,
            unit=ComputeUnit.CUDA_CORES,
            block=self.block,
            footprints=tuple(map(self.footprint, self.block.values)),
        )

    def nest(self, config: Config) -> Nest:
        return CudaRowNest(self.group, self.plan(config), self.context).build()

    def plan(self, config: Config) -> CudaRowPlan:
        """The config decoded."""
        shape = self.block.of(config)
        return CudaRowPlan(
            rows=tuple(
                GridAxis(axis=axis, threads=shape.rows if axis == self._tiled else 1)
                for axis in self.rows
            ),
            column=self.group.column,
            shape=shape,
        )
