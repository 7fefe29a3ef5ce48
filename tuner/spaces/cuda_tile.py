"""The tile sketch for GPUs: thread blocks of threads of register tiles, operands through shared memory, results written once.

Nest, outermost first: the grid, the threads of a block, blocks of the reduction with the operands fetched under them, the
reduction, and the unrolled register tile whose accumulators are a thread's own. A map is the same nest without the reduction:
what is read across the order of writing goes through shared memory, so that both ends are coalesced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.spaces.cpu_rows import identity
from tuner.spaces.cuda_axes import DepthAxis, GridAxis
from tuner.spaces.cuda_fetch import Fetch, fetch
from tuner.spaces.groups import TileGroup, replace_reads
from tuner.spaces.nest import Nest
from tuner.spaces.program import (
    Bind,
    Block,
    Buffer,
    DecomposeReduction,
    Fuse,
    Mark,
    Reorder,
    ReverseComputeAt,
    Step,
    ThreadAxis,
)
from tuner.spaces.stages import accesses, costs_mathematics, unpadded
from tuner.workload.expression import Axis, DType, Read, Scalar, Select, Var, rewrite, substitute

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

    spatial: tuple[GridAxis, ...]  # in the order of the stage's axes; one unit axis where the stage has none
    threads: tuple[str, ...]  # axes with threads, at most three, the fastest last
    grid: tuple[str, ...]  # all axes, in the order in which blocks are numbered
    reduction: tuple[DepthAxis, ...]  # in loop order, the innermost last
    copies: Mapping[Read, CopyPlan]

    def axis(self, name: str) -> GridAxis:
        return next(one for one in self.spatial if one.axis.name == name)


class CudaTileNest:
    """Builds the blocks and steps of one tile group under one plan."""

    def __init__(
        self, group: TileGroup, plan: CudaTilePlan, shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, DType]
    ) -> None:
        self.group, self.plan, self.shapes, self.dtypes = group, plan, shapes, dtypes
        self.name = group.name
        self.blocks: list[Block] = []
        self.buffers: list[Buffer] = []
        self.steps: list[Step] = []
        self.grid = [plan.axis(name).outer for name in plan.grid]
        self.threads = [plan.axis(name).thread for name in plan.threads]
        self.register = [one.vectors for one in plan.spatial] + [one.lane for one in plan.spatial]
        self.spatial = [*self.grid, *self.threads, *self.register]
        self.indices: dict[str, Scalar] = {one.axis.name: one.index for one in plan.spatial}
        self.indices |= {one.axis.name: one.index for one in plan.reduction}

    def build(self) -> Nest:
        fetches: list[Fetch] = []
        body = self._body(fetches)
        self.blocks += [one.block for one in fetches]
        self.buffers += [one.buffer for one in fetches]
        if self.group.anchor.reducer is None:
            self._block(self.name, self.spatial, (), self._output_indices(), body)
            self._loops(self.name, [*self.spatial])
            self._bind(self.name)
            self._place(fetches, f"{self.name}.{self.threads[-1].name}")
            self._innermost(self.name, store=True)
            self._launch(self.name)
        else:
            self._reduce(body, fetches)
        return Nest(tuple(self.blocks), tuple(self.buffers), tuple(self.steps))

    # --- pieces -------------------------------------------------------------------------------------------------------

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
        inside = [one.inner for one in self.plan.reduction] + [one.unrolled for one in self.plan.reduction]
        self._block(acc, self.spatial, (*blocks, *inside), here, body)
        self._loops(acc, [*self.grid, *self.threads, *blocks, *inside, *self.register])
        self._bind(acc)
        self._write_back(Read(acc, here), acc)
        self._place(fetches, f"{acc}.{blocks[-1].name}")
        for one in self.plan.reduction:
            if one.unroll > 1:
                self.steps.append(Mark(loop=f"{acc}.{one.unrolled.name}", how="unroll"))
        self._innermost(acc, store=False)
        self._launch(acc)
        # Last, because TVM marks no loop of a reduction that has lost its initialisation.
        self.steps.append(DecomposeReduction(block=acc, loop=f"{acc}.{blocks[0].name}"))
        self._innermost(f"{acc}_init", store=False)

    def _write_back(self, finished: Read, acc: str) -> None:
        """The block that stores the group's output from finished accumulators, epilogue included."""
        body: Scalar = finished
        if self.group.epilogue is not None:
            extents = {one.axis.name: one.axis.extent for one in self.plan.spatial}
            plain = unpadded(self.group.epilogue.body, self.shapes, extents)
            body = replace_reads(substitute(plain, self.indices), {self.group.anchor.name: finished})
        output = self.group.output.name
        self._block(output, self.spatial, (), self._output_indices(), body)
        self.steps.append(ReverseComputeAt(block=output, loop=f"{acc}.{self.threads[-1].name}"))
        self._loops(output, self.register)
        self._innermost(output, store=True)

    def _output_indices(self) -> tuple[Scalar, ...]:
        return tuple(self.indices[axis.name] for axis in self.group.output.axes)

    def _body(self, fetches: list[Fetch]) -> Scalar:
        """The anchor's body in the nest's iterators; reads of copies redirected, padding of the others made explicit."""
        anchor = self.group.anchor
        extents = {axis.name: axis.extent for axis in (*anchor.axes, *anchor.reduce_axes)}
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
            fetches.append(made)
            values[read] = made.read
        # What replaces a read already speaks of the nest's iterators: their names end in what no name of a stage has.
        redirected = rewrite(anchor.body, lambda node: values.get(node) if isinstance(node, Read) else None)
        return substitute(unpadded(redirected, {**self.shapes, **_shapes(fetches)}, extents), self.indices)

    def _block(
        self, name: str, axes: list[Axis], reduce_axes: tuple[Axis, ...], indices: tuple[Scalar, ...], body: Scalar
    ) -> None:
        reducer = self.group.anchor.reducer if reduce_axes else None
        self.blocks.append(
            Block(name=name, axes=tuple(axes), reduce_axes=reduce_axes, buffer=name, indices=indices, body=body, reducer=reducer)
        )

    def _loops(self, block: str, axes: list[Axis]) -> None:
        self.steps.append(Reorder(loops=tuple(f"{block}.{axis.name}" for axis in axes)))

    def _bind(self, block: str) -> None:
        """Threads are bound before anything is placed under them: what is shared is then known to serve them all."""
        for axis, thread in zip(reversed(self.threads), THREAD_AXES, strict=False):
            self.steps.append(Bind(loop=f"{block}.{axis.name}", axis=thread))

    def _place(self, fetches: list[Fetch], loop: str) -> None:
        extents = tuple(reversed([(name, axis.extent) for name, axis in zip(THREAD_AXES, reversed(self.threads), strict=False)]))
        for one in reversed(fetches):
            self.steps += one.steps(loop, extents)

    def _launch(self, block: str) -> None:
        self.steps.append(Fuse(loops=tuple(f"{block}.{axis.name}" for axis in self.grid), into=f"{block}.grid"))
        self.steps.append(Bind(loop=f"{block}.grid", axis="blockIdx.x"))

    def _innermost(self, block: str, *, store: bool) -> None:
        """Unrolls the register tile; a store of neighbouring elements becomes one where that calls no function lane by lane."""
        bodies = [self.group.anchor.body, *([self.group.epilogue.body] if self.group.epilogue else [])]
        vectors = store and not any(costs_mathematics(body) for body in bodies)
        for axis in self.register:
            if axis.extent > 1:
                one = vectors and axis.name.endswith("_l")
                self.steps.append(Mark(loop=f"{block}.{axis.name}", how="vectorize" if one else "unroll"))


def _shapes(fetches: list[Fetch]) -> dict[str, tuple[int, ...]]:
    return {one.buffer.name: one.buffer.shape for one in fetches}
