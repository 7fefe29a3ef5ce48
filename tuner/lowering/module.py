"""Blocks of a program as a schedulable TVM module.

One PrimFunc, one S-block for each block, loops named after their axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize
from tvm.s_tir.analysis import get_sblock_access_region

from tuner.lowering.arguments import ARGUMENTS
from tuner.lowering.loop_trees import loop_tree
from tuner.lowering.passes.non_temporal import NON_TEMPORAL
from tuner.lowering.scalars import BITS, Scope, identity, lower, lower_bits, unrounded
from tuner.runtime.prepack import pack_symbol
from tuner.spaces.program.loop_tree import LoopTree
from tuner.spaces.program.loops import LoopId
from tuner.spaces.program.marks import Vectorize
from tuner.spaces.program.prepacking import split
from tuner.spaces.program.program import Block, Buffer, Fuse, Prefetch, Program
from tuner.workload.expression import Binary, Cast, Read, Scalar
from tuner.workload.scalar_operators import REDUCTIONS

Section = Sequence[Block | LoopTree]


def module(program: Program, symbol: str) -> tvm.IRModule:
    """The program's blocks, in order, before any step.

    The function is exported as `symbol`, its prologue as `<symbol>_pack`.
    """
    parts = split(program)
    functions = {symbol: _function(parts.main, symbol)}
    if parts.prologue is not None:
        functions[pack_symbol(symbol)] = _function(parts.prologue, pack_symbol(symbol))
    return tvm.IRModule(functions)


def _function(program: Program, symbol: str) -> tirx.PrimFunc:
    """The PrimFunc of a program; its sections become blocks of their own."""
    index_dtype = _index_dtype(program)
    arguments = (*program.inputs, *program.outputs)
    buffers = {
        tensor.name: tirx.decl_buffer(program.addressed(tensor), tensor.dtype, tensor.name)
        for tensor in arguments
    }
    inner = {
        buffer.name: tirx.decl_buffer(
            buffer.shape, _stored(buffer), buffer.name, scope=_scope(buffer.scope)
        )
        for buffer in program.buffers
    }
    scope = Scope(
        buffers | inner,
        {},
        index_dtype,
        given=frozenset(buffers),
        bits=frozenset(buffer.name for buffer in program.buffers if _is_bits(buffer)),
        vectors=_vectors(program),
    )
    sections = program.sections
    shared = dict(inner)
    if len(sections) == 1:
        body = _sequence([_statement(block, scope) for block in program.parts])
    else:
        owned = [_owned(section, sections, inner) for section in sections]
        body = _sequence(
            [_section(section, own, scope) for section, own in zip(sections, owned, strict=True)]
        )
        shared = {
            name: buffer for name, buffer in inner.items() if all(name not in own for own in owned)
        }
    root = SBlock([], [], [], "root", body, alloc_buffers=list(shared.values()))
    function = tirx.PrimFunc(
        [buffers[tensor.name] for tensor in arguments],
        SBlockRealize([], tirx.const(True, "bool"), root),
    )
    attributes = {"global_symbol": symbol, "tirx.noalias": True, "s_tir": True}
    if program.views:
        attributes[ARGUMENTS] = [list(tensor.shape) for tensor in arguments]
    return function.with_attr(attributes)


def _scope(scope: str) -> str:
    """TVM's name of a memory scope.

    Small buffers lie on the stack only if their scope is that of main memory. For other
    scopes TVM's code asks the runtime for each buffer in each call and gives it back,
    which is half of the time of a small kernel.
    """
    return "" if scope in ("global", "stack") else scope


def _stored(buffer: Buffer) -> str:
    """The dtype that TVM sees.

    Of a bfloat16 intermediate TVM makes one of float32, unless it is declared as bits.
    """
    return BITS if _is_bits(buffer) else buffer.dtype


def _is_bits(buffer: Buffer) -> bool:
    return buffer.raw_bits and buffer.dtype == "bfloat16"


def _vectors(program: Program) -> frozenset[LoopId]:
    """The loops that become vectors; for a fused loop those it was made of."""
    fused = {step.into: step.loops for step in program.steps if isinstance(step, Fuse)}
    marked = [step.loop for step in program.steps if isinstance(step, Vectorize)]
    return frozenset(part for loop in marked for part in fused.get(loop, (loop,)))


def _index_dtype(program: Program) -> str:
    """int32 where every buffer has fewer than 2^31 elements, else int64."""
    shapes = [tensor.shape for tensor in (*program.inputs, *program.outputs)] + [
        buffer.shape for buffer in program.buffers
    ]
    largest = max(prod(shape) for shape in shapes)
    return "int32" if largest < 2**31 else "int64"


def _sequence(statements: list[tirx.Stmt]) -> tirx.Stmt:
    return tirx.SeqStmt(statements) if len(statements) > 1 else statements[0]


def _touched(section: Section) -> tuple[set[str], set[str]]:
    """Names of the buffers that a section's blocks read, and of those they write."""
    return {read.tensor for block in section for read in block.sources}, {
        name for block in section for name in block.written
    }


def _owned(
    section: Section, sections: Sequence[Section], inner: Mapping[str, tirx.Buffer]
) -> dict[str, tirx.Buffer]:
    """The intermediates that no other section touches."""
    outside = {
        name
        for other in sections
        if other is not section
        for names in _touched(other)
        for name in names
    }
    read, written = _touched(section)
    return {name: inner[name] for name in inner if name in read | written and name not in outside}


def _section(section: Section, own: Mapping[str, tirx.Buffer], scope: Scope) -> tirx.Stmt:
    """A section as one block that declares the whole buffers it reads and writes.

    TVM cannot prove that overlapping tiles cover a buffer. So other sections only see
    that all of it was written.
    """
    read, written = (
        [
            tirx.BufferRegion(scope.buffers[name], _whole(scope.buffers[name]))
            for name in sorted(names - set(own))
        ]
        for names in _touched(section)
    )
    read = [
        region
        for region in read
        if all(not region.source.same_as(other.source) for other in written)
    ]
    body = _sequence([_statement(block, scope) for block in section])
    return SBlockRealize(
        [],
        tirx.const(True, "bool"),
        SBlock(
            [],
            read,
            written,
            f"section_{section[0].section}",
            body,
            alloc_buffers=list(own.values()),
        ),
    )


def _whole(buffer: tirx.Buffer) -> list[tvm.ir.Range]:
    return [tvm.ir.Range.from_min_extent(0, extent) for extent in buffer.shape]


def _statement(block: Block | LoopTree, scope: Scope) -> tirx.Stmt:
    return loop_tree(block, scope) if isinstance(block, LoopTree) else _nest(block, scope)


def _nest(block: Block, scope: Scope) -> tirx.Stmt:
    """The loops of a block around its statement."""
    axes = [(axis, tirx.IterVar.DataPar) for axis in block.axes] + [
        (axis, tirx.IterVar.CommReduce) for axis in block.reduce_axes
    ]
    loops = [tirx.Var(axis.name, scope.index_dtype) for axis, _ in axes]
    iterators = [
        tirx.IterVar(
            tvm.ir.Range(
                tirx.const(0, scope.index_dtype), tirx.const(axis.extent, scope.index_dtype)
            ),
            f"v_{axis.name}",
            kind,
        )
        for axis, kind in axes
    ]
    inside = scope.bind(
        block,
        {axis.name: iterator.var for (axis, _), iterator in zip(axes, iterators, strict=True)},
    )
    statement: tirx.Stmt = _block(block, iterators, loops, inside)
    for loop, (axis, _) in zip(reversed(loops), reversed(axes), strict=True):
        first, extent = tirx.const(0, scope.index_dtype), tirx.const(axis.extent, scope.index_dtype)
        statement = tirx.For(loop, first, extent, tirx.ForKind.SERIAL, statement)
    return statement


def _prefetch(line: Prefetch, scope: Scope) -> tirx.Stmt:
    """The prefetch of an element's line: for reading (0), into all caches (3), as data (1)."""
    element = tirx.BufferLoad(scope.buffers[line.read.tensor], scope.place(line.read.indices))
    options = [tirx.const(value, "int32") for value in (0, 3, 1)]
    statement = tirx.Evaluate(
        tirx.call_llvm_intrin("void", "llvm.prefetch", tirx.address_of(element), *options)
    )
    for condition in reversed(line.when):
        statement = tirx.IfThenElse(lower(condition, scope, "libm"), statement, None)
    return statement


def _written_again(block: Block, target: tirx.Buffer) -> bool:
    """Whether overlapping tiles write elements more than once.

    TVM's StorageRewrite puts `e[i] = f(s[i])` in the place of an `s` that is not read
    afterwards, which would apply f again to what was written before. TVM leaves alone
    what it takes for foreign.
    """
    return block.reducer is None and prod(axis.extent for axis in block.axes) > prod(
        int(extent) for extent in target.shape
    )


def _block(
    block: Block, iterators: list[tirx.IterVar], loops: list[tirx.Var], inside: Scope
) -> tirx.Stmt:
    """The S-block of a block: its store under its conditions, with its prefetches."""
    target = inside.buffers[block.buffer]
    indices = inside.place(block.indices)
    body, init = block.body, None
    if block.reducer is not None:
        dtype = str(target.dtype)
        so_far = Read(block.buffer, block.indices)
        body = Binary(REDUCTIONS[block.reducer].combine, so_far, Cast(dtype, body))  # type: ignore[arg-type]  # a buffer's dtype is one of ours
        init = tirx.BufferStore(target, identity(block.reducer, dtype), indices)

    def stored(value: Scalar) -> tirx.Stmt:
        if block.buffer in inside.given:  # stored as bfloat16, not as float32
            value = unrounded(value, str(target.dtype))
        lowered = (
            lower_bits(value, inside)
            if block.buffer in inside.bits
            else lower(value, inside, block.math_functions).astype(str(target.dtype))
        )
        return tirx.BufferStore(target, lowered, indices)

    store = stored(body)
    # Each condition is a branch of its own, so that TVM can move it out of the loops that
    # it does not depend on.
    for condition in reversed(block.when):
        # Lowered for each branch, since TVM binds each variable in one place only.
        other = None if block.otherwise is None else stored(block.otherwise)
        store = tirx.IfThenElse(lower(condition, inside, "libm"), store, other)
    if _written_again(block, target) and block.buffer not in inside.given:
        store = tirx.AttrStmt(0, "extern_scope", 0, store)
    bare = SBlock(iterators, [], [], block.name, store, init=init)
    read, write, _ = get_sblock_access_region(
        bare, {buffer: buffer for buffer in inside.buffers.values()}
    )
    if init is not None:
        read = [region for region in read if not region.source.same_as(target)]
    if block.non_temporal:
        store = tirx.AttrStmt(0, NON_TEMPORAL, 0, store)
    # A prefetch is no access, so the block does not depend on what it reads.
    statement = _sequence([*(_prefetch(line, inside) for line in block.prefetches), store])
    realized = SBlock(iterators, read, write, block.name, statement, init=init)
    return SBlockRealize(loops, tirx.const(True, "bool"), realized)
