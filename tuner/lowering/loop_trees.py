"""Trees of loops as TVM statements, their marks included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize

from tuner.lowering.passes.amx import AMX
from tuner.lowering.passes.transposition import TRANSPOSE
from tuner.lowering.scalars import Scope, lower, lower_bits
from tuner.spaces.program.loop_tree import Loop, LoopKind, LoopTree, Statement, Store, When
from tuner.spaces.program.program import MathFunctions
from tuner.workload.expression import Var, walk

KINDS: Mapping[LoopKind, int] = {
    LoopKind.SERIAL: tirx.ForKind.SERIAL,
    LoopKind.PARALLEL: tirx.ForKind.PARALLEL,
    LoopKind.VECTOR: tirx.ForKind.VECTORIZED,
    LoopKind.UNROLLED: tirx.ForKind.UNROLLED,
}


def loop_tree(tree: LoopTree, scope: Scope) -> tirx.Stmt:
    """The tree as one statement.

    Buffers are written in the order of the statements and not once, which TVM would not
    expect of a block: it takes what lies below for foreign, and shares no memory there.
    """
    how: MathFunctions = "polynomial" if tree.polynomials else "libm"
    body = _sequence(tree.body, replace(scope, iterators={}, extents={}), how)
    return tirx.AttrStmt(0, "extern_scope", 0, body)


def _sequence(body: Sequence[Statement], scope: Scope, how: MathFunctions) -> tirx.Stmt:
    statements = [_statement(statement, scope, how) for statement in body]
    return tirx.SeqStmt(statements) if len(statements) > 1 else statements[0]


def _statement(statement: Statement, scope: Scope, how: MathFunctions) -> tirx.Stmt:
    match statement:
        case Store():
            # TVM would let a buffer take the place of one that is read for it last, of
            # which the next tile may need a part again.
            return tirx.AttrStmt(0, "extern_scope", 0, _store(statement, scope, how))
        case When(condition=condition, body=body):
            return tirx.IfThenElse(lower(condition, scope, how), _sequence(body, scope, how), None)
        case Loop():
            return _loop(statement, scope, how)


def _store(store: Store, scope: Scope, how: MathFunctions) -> tirx.Stmt:
    target = scope.buffers[store.buffer]
    if store.buffer in scope.bits:
        stored = lower_bits(store.value, scope)
    else:
        stored = lower(store.value, scope, how).astype(str(target.dtype))
    return tirx.BufferStore(target, stored, scope.place(store.indices))


def _kind(loop: Loop, scope: Scope) -> LoopKind:
    """The loop's kind, but SERIAL for one that fills lanes with the same bfloat16: TVM does
    not compile such vectors."""
    fills = any(
        isinstance(statement, Store)
        and str(scope.buffers[statement.buffer].dtype) == "bfloat16"
        and Var(loop.iterator) not in walk(statement.value)
        for statement in loop.body
    )
    return LoopKind.SERIAL if fills and loop.kind is LoopKind.VECTOR else loop.kind


def _loop(loop: Loop, scope: Scope, how: MathFunctions) -> tirx.Stmt:
    kind = _kind(loop, scope)
    variable = tirx.Var(loop.iterator, scope.index_dtype)
    inside = replace(
        scope,
        iterators={**scope.iterators, loop.iterator: variable},
        extents={**scope.extents, loop.iterator: loop.extent},
        lanes=scope.lanes | ({loop.iterator} if kind is LoopKind.VECTOR else set()),
    )
    if loop.in_matrices:
        return _in_matrices(loop, variable, inside, how)
    body = _sequence(loop.body, inside, how)
    if loop.transposed:
        (inner,) = loop.body
        assert isinstance(inner, Loop)
        return tirx.For(
            variable,
            tirx.const(0, scope.index_dtype),
            tirx.const(loop.extent, scope.index_dtype),
            tirx.ForKind.SERIAL,
            _copied(inner, inside, how),
            annotations={TRANSPOSE: loop.transposed},
        )
    first = tirx.const(0, scope.index_dtype) if loop.first is None else scope.index(loop.first)
    end = tirx.const(loop.extent, scope.index_dtype) if loop.end is None else scope.index(loop.end)
    count = end if loop.first is None else end - first
    return tirx.For(variable, first, count, KINDS[kind], body)


def _in_matrices(loop: Loop, variable: tirx.Var, inside: Scope, how: MathFunctions) -> tirx.Stmt:
    """The loop annotated, a store in it bare, where the pass looks for it."""
    (inner,) = loop.body
    body = (
        _store(inner, inside, how) if isinstance(inner, Store) else _statement(inner, inside, how)
    )
    zero, count = (tirx.const(value, inside.index_dtype) for value in (0, loop.extent))
    return tirx.For(variable, zero, count, tirx.ForKind.SERIAL, body, annotations={AMX: 1})


def _copied(loop: Loop, scope: Scope, how: MathFunctions) -> tirx.Stmt:
    """The inner loop of a transposed copy, its store in a block, where the pass looks for it."""
    variable = tirx.Var(loop.iterator, scope.index_dtype)
    inside = replace(
        scope,
        iterators={**scope.iterators, loop.iterator: variable},
        extents={**scope.extents, loop.iterator: loop.extent},
    )
    (store,) = loop.body
    assert isinstance(store, Store)
    block = SBlock([], [], [], "copy", _store(store, inside, how))
    realize = SBlockRealize([], tirx.const(True, "bool"), block)
    zero, count = (tirx.const(value, scope.index_dtype) for value in (0, loop.extent))
    return tirx.For(variable, zero, count, tirx.ForKind.SERIAL, realize)
