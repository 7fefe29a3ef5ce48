"""The tile sketch for GPUs: thread blocks of threads of register tiles, operands through
shared memory, results written once.

Nest, outermost first: the grid, the threads of a block, blocks of the reduction with the
operands' copies under them, the reduction, and the unrolled register tile whose
accumulators are a thread's own. A map is the same nest without the reduction: what is
read across the order of writing goes through shared memory, so that both ends are
coalesced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.cuda.pipelining import Overlap
from tuner.spaces.cuda.shared_copies import BoxCopy, OperandBox
from tuner.spaces.cuda.tile_plan import CudaTilePlan
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
from tuner.spaces.rewrite.access import accesses, with_explicit_padding
from tuner.spaces.rewrite.groups import TileGroup, replace_reads
from tuner.spaces.rewrite.stages import is_expensive
from tuner.target.cuda import WARP
from tuner.workload.dtypes import DTYPE_BYTES, DType
from tuner.workload.expression import Axis, Read, Scalar, Select, Var, rewrite, substitute
from tuner.workload.scalar_operators import identity

# 32-bit registers of a thread for vectors that are loaded before any of them is used.
MAX_PRELOADED = 64
THREAD_AXES: tuple[ThreadAxis, ...] = ("threadIdx.x", "threadIdx.y", "threadIdx.z")


class CudaTileNest:
    """Builds the blocks and steps of one tile group under one plan."""

    def __init__(self, group: TileGroup, plan: CudaTilePlan, context: SpaceContext) -> None:
        self.group, self.plan = group, plan
        self.shapes, self.dtypes = context.shapes, context.dtypes
        self.name = group.name
        self.blocks: list[Block] = []
        self.buffers: list[Buffer] = []
        self.steps: list[Step] = []
        self.grid = [plan.axis(name).outer for name in plan.grid]
        self.threads = [plan.axis(name).thread for name in plan.threads]
        fastest = plan.axis(plan.threads[-1])
        other_lanes = [part.lane for part in plan.spatial if part is not fastest]
        # A thread's own loops: over vectors of every axis, then over lanes.
        self.register = [*(part.vector for part in plan.spatial), *other_lanes, fastest.lane]
        self.spatial = [*self.grid, *self.threads, *self.register]
        self.indices: dict[str, Scalar] = {part.axis.name: part.index for part in plan.spatial}
        self.indices |= {part.axis.name: part.index for part in plan.reduction}

    def build(self) -> Nest:
        copies: list[BoxCopy] = []
        body = self._body(copies)
        self.blocks += [copy.block for copy in copies]
        self.buffers += [copy.buffer for copy in copies]
        if self.group.anchor.reducer is None:
            self._map(body, copies)
        else:
            self._reduce(body, copies)
        return Nest(tuple(self.blocks), tuple(self.buffers), tuple(self.steps))

    # --- maps

    def _map(self, body: Scalar, copies: list[BoxCopy]) -> None:
        """A nest without a reduction: vectors of what is read, the elements one by one,
        a store of each vector."""
        loads = self._loads(body) if self._by_elements(body) else {}

        def loaded(node: Scalar) -> Scalar | None:
            return loads[node].value if isinstance(node, Read) and node in loads else None

        stored = self._stored(rewrite(body, loaded))
        self._block(self.name, self.spatial, (), self._output_indices(), stored)
        self._loops(self.name, self.spatial)
        self._bind(self.name)
        thread = LoopId.of(self.name, self.threads[-1])
        vector = LoopId.of(self.name, self.register[len(self.plan.spatial) - 1])
        if self._by_elements(body):
            self.steps.append(ComputeAt(block=f"{self.name}_value", loop=vector))
            lanes = [part.lane for part in self.plan.spatial]
            self._innermost(f"{self.name}_value", store=False, axes=lanes)
        self._place_loads([*loads.values()], thread, vector)
        self._place(copies, thread)
        self._innermost(self.name, store=not self._by_elements(stored))
        self._launch(self.name)

    def _place_loads(self, loads: Sequence[VectorLoad], thread: LoopId, vector: LoopId) -> None:
        """Loads all vectors of a thread first, where registers have room for them, or
        each when it is used."""
        registers = sum(
            load.registers(DTYPE_BYTES[self.dtypes[load.source.tensor]], self.register)
            for load in loads
        )
        preloaded = registers <= MAX_PRELOADED
        for load in loads:
            self.steps.append(ComputeAt(block=load.name, loop=thread if preloaded else vector))
            inner = [
                axis
                for axis in load.axes
                if axis in self.register and (preloaded or axis in self._lanes)
            ]
            self._innermost(load.name, store=True, axes=inner)

    @property
    def _lanes(self) -> list[Axis]:
        return [part.lane for part in self.plan.spatial if part.lanes > 1]

    def _by_elements(self, body: Scalar) -> bool:
        """Whether a vector of the body is computed element by element, because that calls
        functions."""
        return bool(self._lanes) and is_expensive(body)

    def _loads(self, body: Scalar) -> dict[Read, VectorLoad]:
        loads = vector_loads(self.name, body, self.spatial, self._lanes[0], self.dtypes)
        for load in loads.values():
            dtype = self.dtypes[load.source.tensor]
            self._registers(load.name, list(load.axes), dtype, load.source)
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
        """A block whose values stay in a thread's registers."""
        self.buffers.append(
            Buffer(name=name, shape=tuple(axis.extent for axis in axes), dtype=dtype, scope="local")
        )
        self._block(name, axes, (), tuple(Var(axis.name) for axis in axes), body)

    # --- reductions

    def _reduce(self, body: Scalar, copies: list[BoxCopy]) -> None:
        anchor, accumulators = self.group.anchor, f"{self.name}_acc"
        assert anchor.reducer is not None
        for part in self.plan.reduction:
            if part.predicate is not None:
                body = Select(part.predicate, body, identity(anchor.reducer, anchor.accumulator))
        element = tuple(Var(axis.name) for axis in self.spatial)
        shape = tuple(axis.extent for axis in self.spatial)
        self.buffers.append(
            Buffer(name=accumulators, shape=shape, dtype=anchor.accumulator, scope="local")
        )
        blocks = [part.outer for part in self.plan.reduction]
        inside = [part.inner for part in self.plan.reduction]
        inside += [part.unrolled for part in self.plan.reduction]
        self._block(accumulators, self.spatial, (*blocks, *inside), element, body)
        self._loops(accumulators, [*self.grid, *self.threads, *blocks, *inside, *self.register])
        self._bind(accumulators)
        self._write_back(Read(accumulators, element), accumulators)
        innermost_block = LoopId.of(accumulators, blocks[-1])
        self._place(copies, innermost_block)
        for part in self.plan.reduction:
            if part.unroll > 1:
                self.steps.append(Unroll(loop=LoopId.of(accumulators, part.unrolled)))
        self._innermost(accumulators, store=False)
        self._launch(accumulators)
        self._pipeline(innermost_block, len(copies))
        # Last, because TVM marks no loop of a reduction that has lost its initialisation.
        self.steps.append(
            DecomposeReduction(block=accumulators, loop=LoopId.of(accumulators, blocks[0]))
        )
        self._innermost(accumulators, store=False, initial=True)

    def _pipeline(self, loop: LoopId, copies: int) -> None:
        """Lets the copies under a loop run ahead of the computing, where the plan has it."""
        overlap = self.plan.pipelining.overlap
        if overlap is Overlap.NONE or not self.plan.overlaps:
            return
        asynchronous = overlap is Overlap.ASYNC
        self.steps.append(
            Pipeline(
                loop=loop,
                copies=copies,
                asynchronous=asynchronous,
                staged_in_registers=not asynchronous,
            )
        )

    def _write_back(self, finished: Read, accumulators: str) -> None:
        """The block that stores the group's output from finished accumulators, epilogue
        included."""
        body: Scalar = finished
        if self.group.epilogue is not None:
            extents = {part.axis.name: part.axis.extent for part in self.plan.spatial}
            plain = with_explicit_padding(self.group.epilogue.body, self.shapes, extents)
            body = replace_reads(
                substitute(plain, self.indices), {self.group.anchor.name: finished}
            )
        output, thread = self.group.output.name, LoopId.of(accumulators, self.threads[-1])
        stored = self._stored(body)
        if stored is not body:
            self.steps.append(ReverseComputeAt(block=f"{self.name}_value", loop=thread))
            self._loops(f"{self.name}_value", self.register)
            self._innermost(f"{self.name}_value", store=False)
        self._block(output, self.spatial, (), self._output_indices(), stored)
        self.steps.append(ReverseComputeAt(block=output, loop=thread))
        self._loops(output, self.register)
        self._innermost(output, store=True)

    # --- pieces

    def _output_indices(self) -> tuple[Scalar, ...]:
        return tuple(self.indices[axis.name] for axis in self.group.output.axes)

    def _body(self, copies: list[BoxCopy]) -> Scalar:
        """The anchor's body in the nest's iterators; adds the copies that it reads.

        Reads of copies are redirected, the padding of others is made explicit.
        """
        anchor = self.group.anchor
        values: dict[Read, Scalar] = {}
        for number, operand in enumerate(accesses(anchor, self.shapes)):
            read = operand.read
            if read not in self.plan.copies:
                continue
            box = OperandBox(
                operand,
                self.plan.spatial,
                self.plan.reduction,
                self.shapes[read.tensor],
                self.dtypes[read.tensor],
            )
            copy = box.copy(f"{self.name}_fetch{number}", self.plan.copies[read])
            if self.plan.pipelining.overlap is Overlap.ASYNC and not copy.keeps_rows:
                # What is copied asynchronously is contiguous at both ends.
                copy = replace(copy, width=1)
            copies.append(copy)
            values[read] = copy.read
        # What replaces a read already speaks of the nest's iterators: their names end
        # in what no name of a stage has.
        redirected = rewrite(
            anchor.body, lambda node: values.get(node) if isinstance(node, Read) else None
        )
        shapes = {**self.shapes, **{copy.buffer.name: copy.buffer.shape for copy in copies}}
        return substitute(with_explicit_padding(redirected, shapes, anchor.extents), self.indices)

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
        """Threads are bound before anything is placed under them: what is shared is then
        known to serve them all."""
        if self.plan.warp_rows:
            self._bind_warps(block)
            return
        for axis, thread in zip(reversed(self.threads), THREAD_AXES, strict=False):
            self.steps.append(Bind(loop=LoopId.of(block, axis), axis=thread))

    def _bind_warps(self, block: str) -> None:
        """All threads on one axis, a warp's in a rectangle: it reads few elements of
        either operand, instead of many of one."""
        warp_rows = self.plan.warp_rows
        *others, rows, columns = (LoopId.of(block, axis) for axis in self.threads)
        for loop, inside in ((rows, warp_rows), (columns, WARP // warp_rows)):
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
        if self.plan.warp_rows:
            return ((THREAD_AXES[0], prod(axis.extent for axis in self.threads)),)
        inside_out = zip(THREAD_AXES, reversed(self.threads), strict=False)
        return tuple(reversed([(name, axis.extent) for name, axis in inside_out]))

    def _place(self, copies: list[BoxCopy], loop: LoopId) -> None:
        staged_in_registers = (
            self.plan.pipelining.overlap is Overlap.REGISTERS and self.plan.overlaps
        )
        for copy in reversed(copies):
            self.steps += copy.steps(
                loop, self._thread_axes, staged_in_registers=staged_in_registers
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
        """Unrolls the register tile; a store of adjacent elements becomes one."""
        for axis in self.register if axes is None else axes:
            if axis.extent > 1:
                loop = LoopId.of(block, axis, initial=initial)
                vectorized = store and axis == self.register[-1]
                self.steps.append(Vectorize(loop=loop) if vectorized else Unroll(loop=loop))


def _warps(threads: LoopId) -> LoopId:
    """The loop over warps of a loop over threads that is split by warp."""
    return replace(threads, axis=f"{threads.axis}w")


def _in_warp(threads: LoopId) -> LoopId:
    """The loop over the threads of one warp."""
    return replace(threads, axis=f"{threads.axis}l")
