"""A kernel's loops as text, before and after scheduling.

A stored text is preferred. Otherwise the loops are derived: before scheduling from the
expression, after it from the program of the kernel's config, by applying its steps. A
block moved below a loop keeps only the loops that its new place does not fix. Loops are
identified by the names of their axes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tuner.db.kernels import Kernel
from tuner.errors import TunerError
from tuner.spaces.by_target import space_of
from tuner.spaces.program.loops import LoopId
from tuner.spaces.program.marks import Mark
from tuner.spaces.program.program import (
    Bind,
    Block,
    ComputeAt,
    DecomposeReduction,
    Fuse,
    Pipeline,
    Program,
    Reorder,
    ReverseComputeAt,
    SplitLoop,
    StageInRegisters,
    StorageAlign,
    Tensorize,
)
from tuner.target.target import Target
from tuner.workload.expression import (
    Binary,
    Bitcast,
    Cast,
    Const,
    Read,
    Reducer,
    Scalar,
    Select,
    Unary,
    Var,
)
from tuner.workload.workload import Workload

SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "floormod": "%", "lt": "<",
    "le": "<=", "gt": ">",
    "ge": ">=", "eq": "==", "ne": "!=", "and": "and", "or": "or", "xor": "^",
}  # fmt: skip
REDUCERS: Mapping[Reducer | None, str] = {
    "sum": "+=",
    "prod": "*=",
    "max": "max=",
    "min": "min=",
    None: "=",
}
STARTS: Mapping[Reducer, str] = {"sum": "0", "prod": "1", "max": "-inf", "min": "inf"}
MOST_TEXT = 200_000  # characters


def scalar(node: Scalar) -> str:
    """An expression as text in the notation, with nested operators in brackets."""
    match node:
        case Var(name=name):
            return name
        case Const(value=value):
            return (
                str(value).lower()
                if isinstance(value, bool)
                else f"{value:g}"
                if isinstance(value, float)
                else str(value)
            )
        case Read(tensor=tensor, indices=indices):
            return f"{tensor}[{', '.join(scalar(index) for index in indices)}]"
        case Unary(op=op, arg=arg):
            return f"-{_inner(arg)}" if op == "neg" else f"{op}({scalar(arg)})"
        case Binary(op=op, lhs=lhs, rhs=rhs):
            return (
                f"{_inner(lhs)} {SIGNS[op]} {_inner(rhs)}"
                if op in SIGNS
                else f"{op}({scalar(lhs)}, {scalar(rhs)})"
            )
        case Select(cond=cond, then=then, other=other):
            return f"where({scalar(cond)}, {scalar(then)}, {scalar(other)})"
        case Cast(dtype=dtype, arg=arg):
            return f"{dtype}({scalar(arg)})"
        case Bitcast(dtype=dtype, arg=arg):
            return f"bitcast({dtype}, {scalar(arg)})"


def _inner(node: Scalar) -> str:
    return f"({scalar(node)})" if isinstance(node, Binary) and node.op in SIGNS else scalar(node)


def before(schedule: Mapping[str, Any], workload: Workload | None) -> str | None:
    """The loops of the expression as it is written, a nest for each stage."""
    kept = schedule.get("before")
    if isinstance(kept, str):
        return kept[:MOST_TEXT]
    if workload is None:
        return None
    lines: list[str] = []
    for stage in workload.expression.stages:
        axes = (*stage.axes, *stage.reduce_axes)
        for depth, axis in enumerate(axes):
            lines.append(f"{'  ' * depth}for {axis.name} in {axis.extent}:")
        target = f"{stage.name}[{', '.join(axis.name for axis in stage.axes)}]"
        lines.append(f"{'  ' * len(axes)}{target} {REDUCERS[stage.reducer]} {scalar(stage.body)}")
    return "\n".join(lines)


def after(
    schedule: Mapping[str, Any], workload: Workload | None, target: Target, kernel: Kernel
) -> str | None:
    """The loops of the kernel's config.

    None if no text was stored and this version does not know the config's space.
    """
    kept = schedule.get("after")
    if isinstance(kept, str):
        return kept[:MOST_TEXT]
    if workload is None or not kernel.config:
        return None
    try:
        return "\n".join(
            nest_lines(space_of(workload, target, kernel.threads).program(kernel.config))
        )[:MOST_TEXT]
    except TunerError:
        return None


def trace_text(schedule: Mapping[str, Any]) -> str | None:
    """The schedule's trace of primitives: its stored text, else an instruction a line."""
    text, trace = schedule.get("text"), schedule.get("trace")
    if isinstance(text, str):
        return text[:MOST_TEXT]
    if isinstance(trace, str):
        return trace[:MOST_TEXT]
    return (
        "\n".join(json.dumps(step) for step in trace)[:MOST_TEXT]
        if isinstance(trace, list) and trace
        else None
    )


@dataclass(slots=True)
class _Nest:
    """A block and its loops while the steps of the program are applied."""

    text: str
    loops: list[tuple[str, int]]  # axis and extent, outermost first
    reduced: frozenset[str]  # axes it sums over
    under: LoopId | None = None  # the loop it was moved below
    last: bool = False  # a consumer, after what computes it
    # the axis above which its initialization was split off, and the text of that
    start: tuple[str, str] | None = None
    marks: dict[str, str] = field(default_factory=dict)
    start_marks: dict[str, str] = field(default_factory=dict)
    fused: dict[str, frozenset[str]] = field(default_factory=dict)  # what a loop was made of


def nest_lines(program: Program) -> list[str]:
    """The program's loops as lines; loops of one iteration are left out."""
    blocks = {block.name: block for block in program.blocks}
    nests = {name: _nest(block) for name, block in blocks.items()}
    for step in program.steps:
        match step:
            case Reorder(loops=loops):
                _reorder(nests[loops[0].block], [loop.axis for loop in loops])
            case ComputeAt(block=block, loop=loop) | ReverseComputeAt(block=block, loop=loop):
                nests[block].under = loop
                nests[block].last = isinstance(step, ReverseComputeAt)
            case DecomposeReduction(block=block, loop=loop):
                nests[block].start = (loop.axis, _start(blocks[block]))
            case Fuse(loops=loops, into=into):
                _fuse(nests, loops[0].block, [loop.axis for loop in loops], into.axis)
            case SplitLoop(loop=loop, factors=factors, into=into):
                _split(nests, loop, factors, [part.axis for part in into])
            case Mark(label=label, loops=loops):
                for loop in loops:
                    _mark(nests, loop, label)
            case Bind(loop=loop, axis=axis):
                _mark(nests, loop, axis)
            case Tensorize(loop=loop, instruction=instruction):
                _mark(nests, loop, instruction.name)
            case Pipeline(loop=loop, stages=stages):
                _mark(nests, loop, f"pipeline of {stages} stages")
            case StageInRegisters() | StorageAlign():
                pass  # where a copy is kept, not how often it runs
    lines: list[str] = []
    for name, nest in nests.items():
        if nest.under is None:
            _write(name, nests, 0, frozenset(), lines)
    return lines


def _nest(block: Block) -> _Nest:
    loops = [(axis.name, axis.extent) for axis in (*block.axes, *block.reduce_axes)]
    text = f"{_place(block)} {REDUCERS[block.reducer]} {scalar(block.body)}"
    return _Nest(text=text, loops=loops, reduced=frozenset(axis.name for axis in block.reduce_axes))


def _place(block: Block) -> str:
    return f"{block.buffer}[{', '.join(scalar(index) for index in block.indices)}]"


def _start(block: Block) -> str:
    return f"{_place(block)} = {STARTS[block.reducer or 'sum']}"


def _reorder(nest: _Nest, order: Sequence[str]) -> None:
    """Reorders the named loops among the places that they hold together."""
    extents, names = dict(nest.loops), iter(order)
    changed = []
    for name, extent in nest.loops:
        place = next(names) if name in order else name
        changed.append((place, extents[place] if name in order else extent))
    nest.loops = changed


def _fuse(nests: Mapping[str, _Nest], block: str, names: Sequence[str], into: str) -> None:
    """Replaces several loops by one, which takes over the blocks moved below them."""
    nest = nests[block]
    extents = dict(nest.loops)
    size = prod(extents[name] for name in names)
    nest.loops = [
        (into, size) if name == names[0] else (name, extent)
        for name, extent in nest.loops
        if name not in names[1:]
    ]
    nest.fused[into] = frozenset(names)
    for other in nests.values():
        if other.under is not None and other.under.block == block and other.under.axis in names:
            other.under = LoopId(block, into)


def _split(
    nests: Mapping[str, _Nest], loop: LoopId, factors: Sequence[int], parts: Sequence[str]
) -> None:
    """Replaces a loop by several, the outermost first.

    Blocks that were moved below it are then below the innermost.
    """
    nest = nests[loop.block]
    outermost = -(-dict(nest.loops)[loop.axis] // prod(factors))
    position = next(n for n, (axis, _) in enumerate(nest.loops) if axis == loop.axis)
    split = zip(parts, (outermost, *factors), strict=True)
    nest.loops[position : position + 1] = split
    nest.fused[parts[-1]] = frozenset({loop.axis}) | nest.fused.get(loop.axis, frozenset())
    for other in nests.values():
        if other.under == loop:
            other.under = LoopId(loop.block, parts[-1])


def _mark(nests: Mapping[str, _Nest], loop: LoopId, label: str) -> None:
    """Adds a mark to a loop."""
    nest = nests[loop.block]
    marks = nest.start_marks if loop.initial else nest.marks
    marks[loop.axis] = f"{marks[loop.axis]}, {label}" if loop.axis in marks else label


def _write(
    name: str, nests: Mapping[str, _Nest], depth: int, fixed: frozenset[str], lines: list[str]
) -> None:
    """Writes a block inside its loops, with the blocks that were moved below them.

    `fixed` are the axes that the block's place fixes already.
    """
    nest = nests[name]
    levels: list[tuple[str, int, frozenset[str]]] = []
    for axis, extent in nest.loops:
        if nest.start is not None and nest.start[0] == axis:
            _write_start(nest, depth, fixed, lines)
        if axis not in fixed and extent > 1:
            lines.append(_loop(depth, axis, extent, nest.marks))
            depth += 1
        fixed |= {axis} | nest.fused.get(axis, frozenset())
        levels.append((axis, depth, fixed))
        _write_moved(name, axis, nests, depth, fixed, lines, last=False)
    lines.append(f"{'  ' * depth}{nest.text}")
    for axis, level, level_fixed in reversed(levels):
        _write_moved(name, axis, nests, level, level_fixed, lines, last=True)


def _write_start(nest: _Nest, depth: int, fixed: frozenset[str], lines: list[str]) -> None:
    """Writes a block's initialization over the open axes that are not reduced."""
    assert nest.start is not None
    for axis, extent in nest.loops:
        if axis not in fixed and axis not in nest.reduced and extent > 1:
            lines.append(_loop(depth, axis, extent, nest.start_marks))
            depth += 1
    lines.append(f"{'  ' * depth}{nest.start[1]}")


def _loop(depth: int, axis: str, extent: int, marks: Mapping[str, str]) -> str:
    return f"{'  ' * depth}for {axis} in {extent}:" + (
        f"  # {marks[axis]}" if axis in marks else ""
    )


def _write_moved(
    name: str,
    axis: str,
    nests: Mapping[str, _Nest],
    depth: int,
    fixed: frozenset[str],
    lines: list[str],
    *,
    last: bool,
) -> None:
    for child, nest in nests.items():
        if nest.under == LoopId(name, axis) and nest.last == last:
            _write(child, nests, depth, fixed, lines)
