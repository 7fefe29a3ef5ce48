"""What the nests of tensor cores share: accumulators held by whole warps, finished
through shared memory, over the iterations of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.spaces.cuda.limits import widest
from tuner.spaces.cuda.pipelining import Overlap, Pipelining
from tuner.spaces.program.loops import LoopId, loops_of
from tuner.spaces.program.marks import Vectorize
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.program import (
    Bind,
    Block,
    Buffer,
    DecomposeReduction,
    Fuse,
    Pipeline,
    Reorder,
    Scope,
    SplitLoop,
    Step,
)
from tuner.spaces.rewrite.access import with_explicit_padding
from tuner.spaces.rewrite.groups import TileGroup, replace_reads
from tuner.spaces.rewrite.stages import is_expensive
from tuner.workload.dtypes import DTYPE_BYTES, DType
from tuner.workload.expression import Axis, Read, Reducer, Scalar, Var, substitute


class AccumulatorNest:
    """The blocks and steps of one tile group as they are added.

    `grid` and `outer` are set before anything is launched.
    """

    grid: list[Axis]  # blocks, in the order in which they are numbered
    outer: list[Axis]  # blocks of the reduction, outermost first

    def __init__(self, group: TileGroup, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.group, self.shapes = group, shapes
        self.name, self.accumulators = group.name, f"{group.name}_acc"
        self.accumulator_dtype: DType = group.anchor.accumulator
        self.blocks: list[Block] = []
        self.buffers: list[Buffer] = []
        self.steps: list[Step] = []

    @property
    def nest(self) -> Nest:
        return Nest(tuple(self.blocks), tuple(self.buffers), tuple(self.steps))

    def add(
        self,
        name: str,
        axes: list[Axis],
        body: Scalar,
        dtype: DType,
        scope: Scope,
        reduce_axes: tuple[Axis, ...] = (),
    ) -> None:
        """A block with a buffer of its own that has an element for each of its points."""
        self.buffers.append(
            Buffer(name=name, shape=tuple(axis.extent for axis in axes), dtype=dtype, scope=scope)
        )
        element = tuple(Var(axis.name) for axis in axes)
        reducer: Reducer | None = "sum" if reduce_axes else None
        self.blocks.append(
            Block(
                name=name,
                axes=tuple(axes),
                reduce_axes=reduce_axes,
                buffer=name,
                indices=element,
                body=body,
                reducer=reducer,
            )
        )

    def add_output(self, axes: list[Axis], finished: Read, indices: Mapping[str, Scalar]) -> None:
        """The block that stores the group's output, epilogue included.

        `indices`: the values of the group's axes at the current element.
        """
        body: Scalar = finished
        if self.group.epilogue is not None:
            extents = {axis.name: axis.extent for axis in self.group.anchor.axes}
            plain = with_explicit_padding(self.group.epilogue.body, self.shapes, extents)
            body = replace_reads(substitute(plain, indices), {self.group.anchor.name: finished})
        place = tuple(indices[axis.name] for axis in self.group.output.axes)
        self.blocks.append(
            Block(name=self.name, axes=tuple(axes), buffer=self.name, indices=place, body=body)
        )

    def reorder(self, block: str, axes: Sequence[Axis]) -> None:
        self.steps.append(Reorder(loops=loops_of(block, axes)))

    def share_store(self, elements: Sequence[Axis], threads: int, width: int) -> None:
        """Deals the output's elements in shared memory out to the threads that hold
        them, `width` adjacent ones to each."""
        name = self.name
        self.steps += [
            Fuse(loops=loops_of(name, elements), into=LoopId(name, "all")),
            SplitLoop(
                loop=LoopId(name, "all"),
                factors=(threads, width),
                into=(LoopId(name, "step"), LoopId(name, "lane"), LoopId(name, "vector")),
            ),
            Bind(loop=LoopId(name, "lane"), axis="threadIdx.x"),
        ]
        if width > 1:
            self.steps.append(Vectorize(loop=LoopId(name, "vector")))

    def launch(self, pipelining: Pipelining) -> None:
        """Binds the grid and overlaps the two operands' copies with computing."""
        accumulators = self.accumulators
        grid = LoopId(accumulators, "grid")
        self.steps += [
            Fuse(loops=loops_of(accumulators, self.grid), into=grid),
            Bind(loop=grid, axis="blockIdx.x"),
            DecomposeReduction(block=accumulators, loop=LoopId.of(accumulators, self.outer[0])),
        ]
        if pipelining.overlap is Overlap.NONE:
            return
        # A window's steps and blocks of the depth are one sequence of iterations: a
        # short depth alone leaves nothing to overlap.
        iteration = LoopId(accumulators, "turn")
        self.steps += [
            Fuse(loops=loops_of(accumulators, self.outer), into=iteration),
            Pipeline(
                loop=iteration,
                copies=2,
                asynchronous=pipelining.overlap is Overlap.ASYNC,
                stages=pipelining.stages,
            ),
        ]


def store_width(group: TileGroup) -> int:
    """Most elements that a thread computes from shared memory and stores at once.

    Functions such as exp have no vectors: adjacent threads then store adjacent elements.
    Of what else is computed, TVM's code generator has constants of 16 bytes at most.
    """
    if group.epilogue is None:
        return widest(DTYPE_BYTES[group.output.dtype])
    return 1 if is_expensive(group.epilogue.body) else widest(DTYPE_BYTES[group.anchor.accumulator])
