"""Loops over the places of compressed rows: `for e in 0:E if P[i] <= e and e < P[i + 1]`
becomes `for e in P[i]:P[i + 1]`. Loops over the rows that terms name: of `for i in 0:M if
J[e] == i` one iteration is left.

Schedules have plain loops with conditions, which all primitives know how to move. This
pass runs on what they were lowered to. A loop is cut where every effect in its body stands
under a lower and an upper bound of its variable that are read from memory and do not
change in the loop, or under an equality. The bounds are clamped to the loop's own range,
so that no iteration comes in that was not there before.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import tvm
from tvm import tirx
from tvm_ffi import structural_equal, structural_map, structural_walk

from tuner.lowering.passes.substitution import substituted, with_replaced

REASSOCIATE = "tuner_reassociate"  # the annotation of loops whose terms may change places
LOAD_ELEMENTS = "tuner_load_elements"  # of loops whose gathered elements are loaded one by one


def may_reassociate(mod: tvm.IRModule) -> bool:
    """Whether a scheduled module has a loop whose terms may be added in any order."""
    marked: list[tirx.For] = []

    def note(loop: tirx.For) -> None:
        if REASSOCIATE in loop.annotations:
            marked.append(loop)

    for function in mod.functions.values():
        structural_walk(function, (tirx.For, note))
    return bool(marked)


def cut_ragged_loops(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with every ragged loop cut to its range."""
    return with_replaced(mod, tirx.For, _cut)


@dataclass(frozen=True)
class _Bound:
    """A condition on the variable of a loop: `value <= variable`, `variable < value`, or
    `variable == value`."""

    value: tvm.ir.PrimExpr
    side: Literal["lower", "upper", "equal"]
    condition: tvm.ir.PrimExpr


def _cut(loop: tirx.For) -> tirx.Stmt:
    if loop.kind != tirx.ForKind.SERIAL:
        return loop
    names = _names(loop.body)
    bounds = _bounds(loop.body, loop.loop_var, names)
    if _writes(loop.body, bounds):
        return loop
    match sorted(bounds, key=lambda bound: bound.side):
        case [_Bound(side="equal") as only]:
            return _left(loop, only)
        case [_Bound(side="lower") as lower, _Bound(side="upper") as upper]:
            return _between(loop, lower, upper)
    return loop


def _between(loop: tirx.For, lower: _Bound, upper: _Bound) -> tirx.Stmt:
    """The loop from one bound to the other."""
    dtype = str(loop.loop_var.ty)
    first, last = (_clamped(bound.value, loop).astype(dtype) for bound in (lower, upper))
    extent = tirx.Max(last - first, tirx.const(0, dtype))
    body = _unguarded(loop.body, [lower, upper])
    return tirx.For(loop.loop_var, first, extent, loop.kind, body, annotations=loop.annotations)


def _left(loop: tirx.For, only: _Bound) -> tirx.Stmt:
    """The iteration of the loop at which its variable has a value, if it has it at all."""
    dtype, wide = str(loop.loop_var.ty), str(only.value.ty)
    first, end = loop.min.astype(wide), (loop.min + loop.extent).astype(wide)
    comes = tirx.And(first <= only.value, only.value < end)
    body = _unguarded(loop.body, [only])
    once = tirx.For(loop.loop_var, only.value.astype(dtype), tirx.const(1, dtype), loop.kind, body)
    return tirx.IfThenElse(comes, once, None)


def _unguarded(body: tirx.Stmt, bounds: Sequence[_Bound]) -> tirx.Stmt:
    """The body without the conditions that the loop's own range now says."""

    def unguarded(branch: tirx.IfThenElse) -> tirx.Stmt:
        guards = any(structural_equal(branch.condition, bound.condition) for bound in bounds)
        return branch.then_case if guards else branch

    return structural_map(body, (tirx.IfThenElse, unguarded))


def _writes(body: tirx.Stmt, bounds: Sequence[_Bound]) -> bool:
    """Whether a statement may change the memory that bounds are read from."""
    read: list[tvm.ir.TensorLoad] = []
    written: list[tirx.BufferStore] = []
    for bound in bounds:
        structural_walk(bound.value, (tvm.ir.TensorLoad, read.append))
    structural_walk(body, (tirx.BufferStore, written.append))
    return any(load.source.same_as(store.buffer) for load in read for store in written)


def _clamped(value: tvm.ir.PrimExpr, loop: tirx.For) -> tvm.ir.PrimExpr:
    wide = str(value.ty)
    first, end = loop.min.astype(wide), (loop.min + loop.extent).astype(wide)
    return tirx.Max(tirx.Min(value, end), first)


def _names(body: tirx.Stmt) -> dict[tirx.Var, tvm.ir.PrimExpr]:
    """The values of variables that the body binds, without such variables in them."""
    names: dict[tirx.Var, tvm.ir.PrimExpr] = {}

    def note(bound: tirx.Bind) -> None:
        names[bound.var] = substituted(bound.value, names)

    structural_walk(body, (tirx.Bind, note))
    return names


def _bounds(
    body: tirx.Stmt, variable: tirx.Var, names: dict[tirx.Var, tvm.ir.PrimExpr]
) -> list[_Bound]:
    """The bounds under which every effect of a statement stands."""
    match body:
        case tirx.SeqStmt():
            parts = [part for part in body.seq if not isinstance(part, tirx.Bind)]
            return _common([_bounds(part, variable, names) for part in parts])
        case tirx.IfThenElse() if body.else_case is None:
            bound = _bound(body.condition, variable, names)
            inside = _bounds(body.then_case, variable, names)
            return [*([] if bound is None else [bound]), *inside]
        case tirx.For():
            inside = _bounds(body.body, variable, names)
            return [bound for bound in inside if not _uses(bound.value, body.loop_var)]
        case tirx.AttrStmt():
            return _bounds(body.body, variable, names)
    return []


def _common(parts: Sequence[list[_Bound]]) -> list[_Bound]:
    if not parts:
        return []
    first, *others = parts
    return [
        bound
        for bound in first
        if all(
            any(structural_equal(bound.condition, same.condition) for same in other)
            for other in others
        )
    ]


def _bound(
    condition: tvm.ir.PrimExpr, variable: tirx.Var, names: dict[tirx.Var, tvm.ir.PrimExpr]
) -> _Bound | None:
    """The condition as a bound of the variable, which is read from memory; None if it is none."""
    plain = substituted(condition, names)
    match plain:
        case tirx.LE() if _is(plain.b, variable) and _is_read(plain.a, variable):
            return _Bound(plain.a, "lower", condition)
        case tirx.LT() if _is(plain.a, variable) and _is_read(plain.b, variable):
            return _Bound(plain.b, "upper", condition)
        case tirx.EQ():
            for side, other in ((plain.a, plain.b), (plain.b, plain.a)):
                value = _solved(side, other, variable)
                if value is not None:
                    return _Bound(value, "equal", condition)
    return None


def _solved(
    side: tvm.ir.PrimExpr, other: tvm.ir.PrimExpr, variable: tirx.Var
) -> tvm.ir.PrimExpr | None:
    """What the variable is where a sum with it equals what is read from memory."""
    if not _is_read(other, variable):
        return None
    terms = _terms(side)
    others = [term for term in terms if not _is(term, variable)]
    if len(others) != len(terms) - 1 or any(_uses(term, variable) for term in others):
        return None
    return functools.reduce(lambda value, term: value - term, others, other)


def _terms(node: tvm.ir.PrimExpr) -> list[tvm.ir.PrimExpr]:
    return [*_terms(node.a), *_terms(node.b)] if isinstance(node, tirx.Add) else [node]


def _is(value: tvm.ir.PrimExpr, variable: tirx.Var) -> bool:
    while isinstance(value, tirx.Cast):
        value = value.value
    return bool(value.same_as(variable))


def _is_read(value: tvm.ir.PrimExpr, variable: tirx.Var) -> bool:
    inner: Any = value
    while isinstance(inner, tirx.Cast):
        inner = inner.value
    return isinstance(inner, tvm.ir.TensorLoad) and not _uses(value, variable)


def _uses(value: tvm.ir.PrimExpr, variable: tirx.Var) -> bool:
    seen: list[tirx.Var] = []
    structural_walk(value, (tirx.Var, seen.append))
    return any(name.same_as(variable) for name in seen)
