"""The tile sketch for GPUs: thread blocks of threads of register tiles, operands
through shared memory, results written once.

Nest, outermost first: the grid, the threads of a block, blocks of the reduction with
the operands fetched under them, the reduction, and the unrolled register tile whose
accumulators are a thread's own. A map is the same nest without the reduction: what is
read across the order of writing goes through shared memory, so that both ends are
coalesced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from tuner.spaces.cuda.axes import DepthAxis, GridAxis
from tuner.spaces.cuda.shared_copies import Fetch, fetch
from tuner.spaces.cuda.vector_loads import VectorLoad, vector_loads
from tuner.spaces.program.loops import LoopId, loops_of
from tuner.spaces.program.marks import Unroll, Vectorize
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.program import (
    Bind,
    Block,
    Buffer,
    ComputeAt,
    DecomposeReduction,
    Fuse,
    Pipeline,
    Reorder,
    ReverseComputeAt,
    SplitLoop,
    Step,
    ThreadAxis,
)
from tuner.spaces.rewrite.access import accesses, unpadded
from tuner.spaces.rewrite.groups import TileGroup, replace_reads
from tuner.spaces.rewrite.predicates import identity
from tuner.spaces.rewrite.stages import costs_mathematics
from tuner.target.cuda import WARP
from tuner.workload.expression import (
    DTYPE_BYTES,
    Axis,
    DType,
    Read,
    Scalar,
    Select,
    Var,
    rewrite,
    substitute,
)

MAX_AHEAD = (
    64  # 32-bit registers of a thread for vectors that are loaded before any of them is used
)
THREAD_AXES: tuple[ThreadAxis, ...] = ("threadIdx.x", "threadIdx.y", "threadIdx.z")


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    """How one operand gets into shared memory."""

    turned: bool  # dimensions the reduction moves along first
    width: int  # elements of a load, at most
    padded: bool  # rows stretched against bank conflicts


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaTilePlan:
    """A config of the sketch, decoded."""

    spatial: tuple[
        GridAxis, ...
    ]  # in the order of the stage's axes; one unit axis where the stage has none
    threads: tuple[str, ...]  # axes with threads, at most three, the fastest last
    grid: tuple[str, ...]  # all axes, in the order in which blocks are numbered
    reduction: tuple[DepthAxis, ...]  # in loop order, the innermost last
    copies: Mapping[Read, CopyPlan]
    # rows of threads that a warp covers, along the last but one axis with threads; 0:
    # threads numbered row by row
    warp: int = 0
    pipeline: str = "none"  # or "registers" or "async": how copies run ahead of the computing

    @property
    def overlaps(self) -> bool:
        """Whether there are copies, and anything to compute while they are under way."""
        return bool(self.copies and self.reduction and self.reduction[-1].outer.extent > 1)

    def axis(self, name: str) -> GridAxis:
        return next(one for one in self.spatial if one.axis.name == name)


class CudaTileNest:
    """Builds the blocks and steps of one tile group under one plan."""

    def __init__(
        self,
        group: TileGroup,
        plan: CudaTilePlan,
        shapes: Mapping[str, tuple[int, ...]],
        dtypes: Mapping[str, DType],
    ) -> None:
        self.group, self.plan, self.shapes, self.dtypes = group, plan, shapes, dtypes
        self.name = group.name
        self.blocks: list[Block] = []
        self.buffers: list[Buffer] = []
        self.steps: list[Step] = []
        self.grid = [plan.axis(name).outer for name in plan.grid]
        self.threads = [plan.axis(name).thread for name in plan.threads]
        fastest = plan.axis(plan.threads[-1])
        others = [one.lane for one in plan.spatial if one is not fastest]
        self.register = [*(one.vectors for one in plan.spatial), *others, fastest.lane]
        self.spatial = [*self.grid, *self.threads, *self.register]
        self.indices: dict[str, Scalar] = {one.axis.name: one.index for one in plan.spatial}
        self.indices |= {one.axis.name: one.index for one in plan.reduction}

    def build(self) -> Nest:
        fetches: list[Fetch] = []
        body = self._body(fetches)
        self.blocks += [one.block for one in fetches]
        self.buffers += [one.buffer for one in fetches]
        if self.group.anchor.reducer is None:
            self._map(body, fetches)
        else:
            self._reduce(body, fetches)
        return Nest(tuple(self.blocks), tuple(self.buffers), tuple(self.steps))

    # --- pieces
    # ------------------------------------------------------------------------------

    def _map(self, body: Scalar, fetches: list[Fetch]) -> None:
        """A nest without a reduction: vectors of what is read, the elements one by one,
        a store of each vector."""
        loads = self._loads(body) if self._by_elements(body) else {}
        stored = self._stored(
            rewrite(
                body,
                lambda node: (
                    loads[node].value if isinstance(node, Read) and node in loads else None
                ),
            )
        )
        self._block(self.name, self.spatial, (), self._output_indices(), stored)
        self._loops(self.name, [*self.spatial])
        self._bind(self.name)
        thread, vector = (
            LoopId.of(self.name, self.threads[-1]),
            LoopId.of(self.name, self.register[len(self.plan.spatial) - 1]),
        )
        if self._by_elements(body):
            self.steps.append(ComputeAt(block=f"{self.name}_value", loop=vector))
            self._innermost(
                f"{self.name}_value", store=False, axes=[one.lane for one in self.plan.spatial]
            )
        words = sum(
            one.words(DTYPE_BYTES[self.dtypes[one.source.tensor]], self.register)
            for one in loads.values()
        )
        for one in loads.values():
            ahead = words <= MAX_AHEAD
            self.steps.append(ComputeAt(block=one.name, loop=thread if ahead else vector))
            inner = [
                axis
                for axis in one.axes
                if axis in self.register and (ahead or axis in self._lanes)
            ]
            self._innermost(one.name, store=True, axes=inner)
        self._place(fetches, thread)
        self._innermost(self.name, store=not self._by_elements(stored))
        self._launch(self.name)

    @property
    def _lanes(self) -> list[Axis]:
        return [one.lane for one in self.plan.spatial if one.lanes > 1]

    def _by_elements(self, body: Scalar) -> bool:
        """Whether a vector of the body is computed one element after another, because
        that calls functions."""
        return bool(self._lanes) and costs_mathematics(body)

    def _loads(self, body: Scalar) -> dict[Read, VectorLoad]:
        loads = vector_loads(self.name, body, self.spatial, self._lanes[0], self.dtypes)
        for one in loads.values():
            self._registers(one.name, list(one.axes), self.dtypes[one.source.tensor], one.source)
        return loads

    def _stored(self, body: Scalar) -> Scalar:
        """What is stored: the body, or registers in which its elements are computed one
        by one, so that the store is a vector."""
        if not self._by_elements(body):
            return body
        name = f"{self.name}_value"
        self._registers(name, self.spatial, self.group.output.dtype, body)
        return Read(name, tuple(Var(axis.name) for axis in self.spatial))

    def _registers(self, name: str, axes: list[Axis], dtype: DType, body: Scalar) -> None:
        self.buffers.append(
            Buffer(name=name, shape=tuple(axis.extent for axis in axes), dtype=dtype, scope="local")
        )
        self._block(name, axes, (), tuple(Var(axis.name) for axis in axes), body)

    def _reduce(self, body: Scalar, fetches: list[Fetch]) -> None:
        anchor, acc = self.group.anchor, f"{self.name}_acc"
        assert anchor.reducer is not None
        for one in self.plan.reduction:
            if one.counts is not None:
                body = Select(one.counts, body, identity(anchor.reducer, anchor.accumulator))
        here = tuple(Var(axis.name) for axis in self.spatial)
        shape = tuple(axis.extent for axis in self.spatial)
        self.buffers.append(Buffer(name=acc, shape=shape, dtype=anchor.accumulator, scope="local"))
        blocks = [one.outer for one in self.plan.reduction]
        inside = [one.inner for one in self.plan.reduction] + [
            one.unrolled for one in self.plan.reduction
        ]
        self._block(acc, self.spatial, (*blocks, *inside), here, body)
        self._loops(acc, [*self.grid, *self.threads, *blocks, *inside, *self.register])
        self._bind(acc)
        self._write_back(Read(acc, here), acc)
        self._place(fetches, LoopId.of(acc, blocks[-1]))
        for one in self.plan.reduction:
            if one.unroll > 1:
                self.steps.append(Unroll(loop=LoopId.of(acc, one.unrolled)))
        self._innermost(acc, store=False)
        self._launch(acc)
        if self.plan.pipeline != "none" and self.plan.overlaps:
            asynchronous, loop = self.plan.pipeline == "async", LoopId.of(acc, blocks[-1])
            self.steps.append(
                Pipeline(
                    loop=loop,
                    copies=len(fetches),
                    asynchronous=asynchronous,
                    staged_in_registers=not asynchronous,
                )
            )
        # Last, because TVM marks no loop of a reduction that has lost its initialisation.
        self.steps.append(DecomposeReduction(block=acc, loop=LoopId.of(acc, blocks[0])))
        self._innermost(acc, store=False, initial=True)

    def _write_back(self, finished: Read, acc: str) -> None:
        """The block that stores the group's output from finished accumulators, epilogue
        included."""
        body: Scalar = finished
        if self.group.epilogue is not None:
            extents = {one.axis.name: one.axis.extent for one in self.plan.spatial}
            plain = unpadded(self.group.epilogue.body, self.shapes, extents)
            body = replace_reads(
                substitute(plain, self.indices), {self.group.anchor.name: finished}
            )
        output, thread = self.group.output.name, LoopId.of(acc, self.threads[-1])
        stored = self._stored(body)
        if stored is not body:
            self.steps.append(ReverseComputeAt(block=f"{self.name}_value", loop=thread))
            self._loops(f"{self.name}_value", self.register)
            self._innermost(f"{self.name}_value", store=False)
        self._block(output, self.spatial, (), self._output_indices(), stored)
        self.steps.append(ReverseComputeAt(block=output, loop=thread))
        self._loops(output, self.register)
        self._innermost(output, store=True)

    def _output_indices(self) -> tuple[Scalar, ...]:
        return tuple(self.indices[axis.name] for axis in self.group.output.axes)

    def _body(self, fetches: list[Fetch]) -> Scalar:
        """The anchor's body in the nest's iterators; reads of copies redirected,
        padding of the others made explicit."""
        anchor = self.group.anchor
        values: dict[Read, Scalar] = {}
        for number, found in enumerate(accesses(anchor, self.shapes)):
            read = found.read
            if read not in self.plan.copies:
                continue
            how = self.plan.copies[read]
            made = fetch(
                f"{self.name}_fetch{number}",
                found,
                self.plan.spatial,
                self.plan.reduction,
                self.shapes[read.tensor],
                self.dtypes[read.tensor],
                turned=how.turned,
                width=how.width,
                padded=how.padded,
            )
            if self.plan.pipeline == "async" and not made.straight:
                made = replace(
                    made, width=1
                )  # what is copied asynchronously lies side by side at both ends
            fetches.append(made)
            values[read] = made.read
        # What replaces a read already speaks of the nest's iterators: their names end
        # in what no name of a stage has.
        redirected = rewrite(
            anchor.body, lambda node: values.get(node) if isinstance(node, Read) else None
        )
        return substitute(
            unpadded(redirected, {**self.shapes, **_shapes(fetches)}, anchor.extents), self.indices
        )

    def _block(
        self,
        name: str,
        axes: list[Axis],
        reduce_axes: tuple[Axis, ...],
        indices: tuple[Scalar, ...],
        body: Scalar,
    ) -> None:
        reducer = self.group.anchor.reducer if reduce_axes else None
        self.blocks.append(
            Block(
                name=name,
                axes=tuple(axes),
                reduce_axes=reduce_axes,
                buffer=name,
                indices=indices,
                body=body,
                reducer=reducer,
            )
        )

    def _loops(self, block: str, axes: list[Axis]) -> None:
        self.steps.append(Reorder(loops=loops_of(block, axes)))

    def _bind(self, block: str) -> None:
        """Threads are bound before anything is placed under them: what is shared is
        then known to serve them all."""
        if self.plan.warp:
            self._bind_warps(block)
            return
        for axis, thread in zip(reversed(self.threads), THREAD_AXES, strict=False):
            self.steps.append(Bind(loop=LoopId.of(block, axis), axis=thread))

    def _bind_warps(self, block: str) -> None:
        """All threads on one axis, a warp's in a rectangle: it reads few elements of
        either operand, instead of many of one."""
        *others, rows, columns = (LoopId.of(block, axis) for axis in self.threads)
        for loop, inside in ((rows, self.plan.warp), (columns, WARP // self.plan.warp)):
            self.steps.append(
                SplitLoop(loop=loop, factors=(inside,), into=(_warps(loop), _in_warp(loop)))
            )
        order = (_warps(rows), _warps(columns), _in_warp(rows), _in_warp(columns))
        self.steps += [
            Reorder(loops=order),
            Fuse(loops=(*others, *order), into=columns),
            Bind(loop=columns, axis=THREAD_AXES[0]),
        ]

    @property
    def _thread_axes(self) -> tuple[tuple[ThreadAxis, int], ...]:
        """The block's axes of threads with their extents, the fastest last."""
        if self.plan.warp:
            return ((THREAD_AXES[0], prod(axis.extent for axis in self.threads)),)
        return tuple(
            reversed(
                [
                    (name, axis.extent)
                    for name, axis in zip(THREAD_AXES, reversed(self.threads), strict=False)
                ]
            )
        )

    def _place(self, fetches: list[Fetch], loop: LoopId) -> None:
        for one in reversed(fetches):
            self.steps += one.steps(
                loop,
                self._thread_axes,
                held=self.plan.pipeline == "registers" and self.plan.overlaps,
            )

    def _launch(self, block: str) -> None:
        self.steps.append(Fuse(loops=loops_of(block, self.grid), into=LoopId(block, "grid")))
        self.steps.append(Bind(loop=LoopId(block, "grid"), axis="blockIdx.x"))

    def _innermost(
        self,
        block: str,
        *,
        store: bool,
        axes: list[Axis] | None = None,
        initial: bool = False,
    ) -> None:
        """Unrolls the register tile; a store of neighbouring elements becomes one."""
        for axis in self.register if axes is None else axes:
            if axis.extent > 1:
                loop = LoopId.of(block, axis, initial=initial)
                vector = store and axis == self.register[-1]
                self.steps.append(Vectorize(loop=loop) if vector else Unroll(loop=loop))


def _warps(threads: LoopId) -> LoopId:
    """The loop over warps of a loop over threads that is split by warp."""
    return replace(threads, axis=f"{threads.axis}w")


def _in_warp(threads: LoopId) -> LoopId:
    """The loop over the threads of one warp."""
    return replace(threads, axis=f"{threads.axis}l")


def _shapes(fetches: list[Fetch]) -> dict[str, tuple[int, ...]]:
    return {one.buffer.name: one.buffer.shape for one in fetches}
