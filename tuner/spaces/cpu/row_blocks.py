"""Blocks of a row nest that write a buffer of the nest's own."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.spaces.cpu.nest_parts import NestParts
from tuner.spaces.cpu.row_plan import RowLoops
from tuner.spaces.program.program import Buffer, Prefetch, Scope
from tuner.workload.dtypes import DType
from tuner.workload.expression import Axis, Reducer, Scalar, Var


class RowBlocks:
    """Adds to a nest blocks and buffers whose first axes are the loops over rows."""

    def __init__(self, loops: RowLoops, parts: NestParts) -> None:
        self._loops, self._parts = loops, parts

    def allocate(
        self, name: str, along: Sequence[Axis], dtype: DType, *, scope: Scope = "stack"
    ) -> None:
        """Adds the buffer of the block `name`, with axes `along` a row."""
        shape = tuple(axis.extent for axis in (*self._loops.spatial, *along))
        self._parts.buffers.append(Buffer(name=name, shape=shape, dtype=dtype, scope=scope))

    def compute(
        self,
        name: str,
        along: Sequence[Axis],
        body: Scalar,
        *,
        reduce_axes: Sequence[Axis] = (),
        reducer: Reducer | None = None,
        when: tuple[Scalar, ...] = (),
        otherwise: Scalar | None = None,
        prefetches: tuple[Prefetch, ...] = (),
    ) -> None:
        """Adds the block that fills the buffer of its own name."""
        axes = [*self._loops.spatial, *along]
        self._parts.compute(
            name,
            axes,
            [Var(axis.name) for axis in axes],
            body,
            reduce_axes=reduce_axes,
            reducer=reducer,
            when=when,
            otherwise=otherwise,
            prefetches=prefetches,
        )

    def local(self, name: str, along: Sequence[Axis], body: Scalar, dtype: DType) -> None:
        """Adds a block whose few values a row stay in registers."""
        self.allocate(name, along, dtype)
        self.compute(name, along, body)
