"""A program's steps applied as TVM primitives: the schedule with its trace.

The trace outlives the space that the program came from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm.s_tir import Schedule, ScheduleError
from tvm.s_tir.schedule import LoopRV

from tuner.errors import IllegalSchedule
from tuner.lowering.cuda.tensor_cores import register_for_trace, registered
from tuner.lowering.module import module
from tuner.lowering.passes.amx import AMX, PARTS
from tuner.lowering.passes.dot_products import DOT, INTERLEAVE
from tuner.lowering.passes.guarded_copies import GUARDED
from tuner.lowering.passes.half_byte_products import DOT_HALVES
from tuner.lowering.passes.matrix_products import MULTIPLY
from tuner.lowering.passes.no_unroll import NO_UNROLL
from tuner.lowering.passes.ragged_loops import LOAD_ELEMENTS, REASSOCIATE
from tuner.lowering.passes.shared_rows import SHARED
from tuner.lowering.passes.table_lookups import LOOK_UP
from tuner.lowering.passes.transposition import TRANSPOSE, TRANSPOSE_WORDS
from tuner.runtime.prepack import Prepack, pack_symbol
from tuner.spaces.program.loops import LoopId, loops_of
from tuner.spaces.program.marks import (
    AmxParts,
    AmxTile,
    DotProduct,
    GuardedCopy,
    HalfByteProduct,
    Interleave,
    LoadElements,
    Mark,
    MatrixProduct,
    NoUnroll,
    Parallel,
    Reassociate,
    ShareByPlaces,
    TableLookup,
    TransposeInRegisters,
    TransposeWordsInRegisters,
    Unroll,
    Vectorize,
)
from tuner.spaces.program.prepacking import split
from tuner.spaces.program.program import (
    Bind,
    Block,
    Buffer,
    ComputeAt,
    DecomposeReduction,
    Fuse,
    Pipeline,
    Program,
    Reorder,
    ReverseComputeAt,
    Specialize,
    SplitLoop,
    StageInRegisters,
    Step,
    StorageAlign,
    Tensorize,
)
from tuner.workload.affine import affine, value_range
from tuner.workload.expression import Read, Tensor, Var, reads


@dataclass(frozen=True, kw_only=True)
class StoredSchedule:
    """A config applied, in a form that needs neither space nor sketch to be applied again."""

    module: str  # the rewritten module before any primitive, TVM JSON
    trace: str  # the primitives, JSON of `Trace.as_json()`
    text: str  # the trace as readable Python, for people
    versions: dict[str, str]  # of apache-tvm and apache-tvm-ffi
    # What the module's pack function takes and gives: see tuner.runtime.prepack.
    prepack: dict[str, Any] | None = None


# The annotations of marks that our own passes replace by instructions, as stored
# schedules have them.
ANNOTATIONS: Mapping[type[Mark], str] = {
    NoUnroll: NO_UNROLL,
    Reassociate: REASSOCIATE,
    LoadElements: LOAD_ELEMENTS,
    Interleave: INTERLEAVE,
    DotProduct: DOT,
    MatrixProduct: MULTIPLY,
    HalfByteProduct: DOT_HALVES,
    AmxTile: AMX,
    AmxParts: PARTS,
    GuardedCopy: GUARDED,
}


# Says of a block in a trace that another generator than TVM's made its kernel.
SPECIALIZED = "tuner.specialized"


class Applier:
    """Applies steps one after another, and knows which TVM loop each loop has become."""

    def __init__(self, program: Program, symbol: str, scheduled: Schedule) -> None:
        self.schedule = scheduled
        self.schedule.work_on(symbol)
        self._axes = {
            block.name: [axis.name for axis in (*block.axes, *block.reduce_axes)]
            for block in program.blocks
        }
        self._spatial = {block.name: {axis.name for axis in block.axes} for block in program.blocks}
        self._scalar = {
            name for block in program.blocks for name in _without_vectors(block, program)
        }
        self._loops: dict[LoopId, LoopRV] = {}
        for name in self._axes:
            self._name_loops(name, self._axes[name])

    def _name_loops(self, block: str, axes: list[str], *, initial: bool = False) -> None:
        """Names the block's innermost loops after its axes."""
        names = [LoopId(block, axis, initial) for axis in axes]
        within = self.schedule.get_sblock(names[0].block_name if names else block)
        loops = self.schedule.get_loops(within)
        self._loops |= dict(zip(names, loops[len(loops) - len(axes) :], strict=True))

    def apply(self, step: Step) -> None:
        """Apply one step. Raises TVM's ScheduleError, or IllegalSchedule."""
        sch = self.schedule
        match step:
            case Reorder(loops=loops):
                sch.reorder(*[self._loops[name] for name in loops])
                block, axes = loops[0].block, [loop.axis for loop in loops]
                self._axes[block] = [axis for axis in self._axes[block] if axis not in axes] + axes
            case ComputeAt(block=block, loop=loop, first=first):
                sch.compute_at(
                    sch.get_sblock(block),
                    self._loops[loop],
                    preserve_unit_loops=True,
                    index=-2 if first else -1,
                )
                self._name_loops(block, self._axes[block])
            case ReverseComputeAt(block=block, loop=loop):
                sch.reverse_compute_at(
                    sch.get_sblock(block), self._loops[loop], preserve_unit_loops=True
                )
                self._name_loops(block, self._axes[block])
            case DecomposeReduction(block=block, loop=loop):
                self._decompose(block, loop)
            case Fuse(loops=loops, into=fused):
                self._loops[fused] = sch.fuse(*[self._loops[name] for name in loops])
                self._rename([loop.axis for loop in loops], fused)
            case SplitLoop(loop=loop, factors=factors, into=into):
                self._loops |= dict(
                    zip(into, sch.split(self._loops[loop], [None, *factors]), strict=True)
                )
            case Bind(loop=loop, axis=axis):
                sch.bind(self._loops[loop], axis)
            case StorageAlign(block=block, dimension=dimension, factor=factor, offset=offset):
                sch.storage_align(sch.get_sblock(block), 0, dimension, factor, offset)
            case StageInRegisters(block=block):
                sch.annotate(sch.get_sblock(block), "tirx.manifest_shared_memory_local_stage", 1)
            case Tensorize(loop=loop, instruction=instruction):
                sch.tensorize(self._loops[loop], registered(instruction))
            case Pipeline():
                self._pipeline(step)
            case Specialize(product=block):
                sch.annotate(sch.get_sblock(block), SPECIALIZED, 1)
            case Mark():
                self._mark(step)

    def _rename(self, fused: list[str], into: LoopId) -> None:
        """Puts the axis of a fused loop in the place of those that it was made of.

        Splits are not followed: a loop fused of their parts may keep the name of one that
        was split, which has its place.
        """
        axes, spatial = self._axes[into.block], self._spatial[into.block]
        if set(fused) <= set(axes) and into.axis not in axes:
            first = axes.index(fused[0])
            self._axes[into.block] = [
                *axes[:first],
                into.axis,
                *(axis for axis in axes[first:] if axis not in fused),
            ]
            spatial |= {into.axis} if spatial.issuperset(fused) else set()

    def _pipeline(self, step: Pipeline) -> None:
        """Annotate a loop for TVM's software pipelining."""
        loop, copies = self._loops[step.loop], step.copies
        if step.staged_in_registers:
            # Each copy's loads come first, its stores after the computing.
            parts = 2 * copies
            order = [place for copy in range(copies) for place in (copy, copies + 1 + copy)]
            order.append(copies)
        else:
            parts, order = copies, list(range(copies + 1))
        self.schedule.annotate(loop, "software_pipeline_stage", [0] * parts + [step.stages - 1])
        self.schedule.annotate(loop, "software_pipeline_order", order)
        if step.asynchronous:
            self.schedule.annotate(loop, "software_pipeline_async_stages", [0])

    def _mark(self, mark: Mark) -> None:
        """Mark a loop by a primitive of TVM, or by an annotation for a pass of ours."""
        sch, loop = self.schedule, self._loops[mark.loop]
        self._check_place(mark)
        match mark:
            case Parallel():
                sch.parallel(loop)
            case Unroll():
                sch.unroll(loop)
            case Vectorize():
                if mark.loop not in self._scalar:
                    sch.vectorize(loop)
            case TransposeWordsInRegisters(vector_lanes=vector_lanes):
                sch.annotate(loop, TRANSPOSE_WORDS, vector_lanes)
            case TransposeInRegisters(vector_lanes=vector_lanes):
                sch.annotate(loop, TRANSPOSE, vector_lanes)
            case ShareByPlaces(tasks=tasks):
                sch.annotate(loop, SHARED, tasks)
            case TableLookup(table=table):
                sch.annotate(loop, LOOK_UP, list(table))
            case _:
                for marked in mark.loops:
                    sch.annotate(self._loops[marked], ANNOTATIONS[type(mark)], 1)

    def _check_place(self, mark: Mark) -> None:
        """Refuse a mark on a loop with more or fewer loops inside than it needs."""
        order = self._axes[mark.loop.block]
        if mark.loops_below is None or mark.loop.axis not in order:
            return
        inside = len(order) - 1 - order.index(mark.loop.axis)
        if inside != mark.loops_below:
            raise IllegalSchedule(
                f"{mark.label} on {mark.loop}, which has {inside} loops inside "
                f"instead of {mark.loops_below}"
            )

    def _decompose(self, block: str, loop: LoopId) -> None:
        """Split the initialisation of a reduction off, above a loop."""
        order = self._axes[block]
        below = order[order.index(loop.axis) :]
        spatial = [axis for axis in below if axis in self._spatial[block]]
        self.schedule.decompose_reduction(self.schedule.get_sblock(block), self._loops[loop])
        if spatial:
            self._name_loops(block, spatial, initial=True)


def _without_vectors(block: Block, program: Program) -> set[LoopId]:
    """Loops that TVM's code generator cannot vectorise.

    It cannot store one bfloat16 value to all vector lanes.
    """
    every: tuple[Tensor | Buffer, ...] = (*program.inputs, *program.buffers, *program.outputs)
    shapes = {tensor.name: tensor.shape for tensor in every} | dict(program.views)
    if next(tensor.dtype for tensor in every if tensor.name == block.buffer) != "bfloat16":
        return set()
    extents = block.extents
    # Only a read that depends on the axis, and is not always padding, is sure to differ
    # between vector lanes.
    moving = {
        atom
        for read in reads(block.body)
        if not _always_outside(read, shapes[read.tensor], extents)
        for index in read.indices
        for atom in affine(index).terms
    }
    fixed = [axis for axis in block.axes if Var(axis.name) not in moving]
    return set(loops_of(block.name, fixed))


def _always_outside(read: Read, shape: tuple[int, ...], extents: Mapping[str, int]) -> bool:
    """Whether a read is outside of its tensor at every point."""
    ranges = (value_range(index, extents) for index in read.indices)
    return any(
        values.high < 0 or values.low >= extent
        for values, extent in zip(ranges, shape, strict=True)
    )


def schedule(program: Program, symbol: str) -> Schedule:
    """The program's module with its steps applied.

    Raises IllegalSchedule with TVM's reason where it refuses a primitive.
    """
    scheduled = Schedule(module(program, symbol), error_render_level="detail")
    parts = split(program)
    if parts.prologue is not None:
        _apply(parts.prologue, pack_symbol(symbol), scheduled)
    _apply(parts.main, symbol, scheduled)
    return scheduled


def _apply(program: Program, symbol: str, scheduled: Schedule) -> None:
    applier = Applier(program, symbol, scheduled)
    for step in program.steps:
        try:
            applier.apply(step)
        except ScheduleError as error:
            raise IllegalSchedule(f"{type(step).__name__} {step}: {error}") from error


def prepack_of(program: Program, symbol: str) -> Prepack | None:
    """What the module's pack function takes and gives; None where there is none."""
    parts = split(program)
    if parts.prologue is None:
        return None
    inputs = [tensor.name for tensor in program.inputs]
    places = {
        name: place
        for place, name in enumerate([*inputs, *(tensor.name for tensor in parts.prologue.outputs)])
    }
    return Prepack(
        constants=tuple(places[tensor.name] for tensor in parts.prologue.inputs),
        packed=parts.prologue.outputs,
        passed=tuple(places[tensor.name] for tensor in parts.main.inputs),
        tvm_symbol=f"__tvm_ffi_{pack_symbol(symbol)}",
    )


def stored(program: Program, symbol: str, scheduled: Schedule) -> StoredSchedule:
    """The stored form of a program's schedule."""
    trace, prepack = scheduled.trace, prepack_of(program, symbol)
    return StoredSchedule(
        module=tvm.ir.save_json(module(program, symbol)),
        trace=json.dumps(trace.as_json(), default=int),
        text=str(trace),
        versions={"apache-tvm": tvm.__version__, "apache-tvm-ffi": tvm_ffi.__version__},
        prepack=None if prepack is None else prepack.document(),
    )


def replay(stored_schedule: StoredSchedule) -> tvm.IRModule:
    """The scheduled module again, from its stored form alone."""
    register_for_trace(stored_schedule.trace)
    sch = Schedule(tvm.ir.load_json(stored_schedule.module))
    tvm.s_tir.schedule.Trace.apply_json_to_schedule(json.loads(stored_schedule.trace), sch)
    return sch.mod
