"""Index arithmetic in a normal form: terms in order of appearance, then a constant.

Iterators that cancel out are gone afterwards. Pure rewriting of trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from tuner.workload.affine import affine
from tuner.workload.expression import Binary, Const, Scalar, Var, walk

_BELOW_ANY = -(2**30)


def without_cancelled(index: Scalar) -> Scalar:
    """The index, in normal form only where an iterator in it cancels out (`i - i`).

    TVM would divide by the iterator's coefficient, which is 0.
    """
    tidied = tidy(index)
    return opaque(index if _iterators(tidied) == _iterators(index) else tidied)


def opaque(index: Scalar) -> Scalar:
    """The index, hidden from TVM's analysis of iterators where parts of one may cancel out.

    Of `i mod 3 - i` TVM divides by the coefficient of `i`, which is 0. The index is
    hidden by a maximum with a bound that no index is below, which later passes drop.
    """
    atoms = affine(index).terms
    divided = [
        _iterators(atom)
        for atom in atoms
        if isinstance(atom, Binary) and atom.op in {"floordiv", "floormod"}
    ]
    seen = [_iterators(atom) for atom in atoms]
    entangled = any(sum(bool(names & other) for other in seen) > 1 for names in divided)
    return Binary("max", index, Const(_BELOW_ANY, "int64")) if entangled else index


def mistakable(indices: Sequence[Scalar]) -> bool:
    """Whether TVM may join the indices of an access wrongly.

    Where two divisions by the same number share an iterator and differ, such as `(i +
    2) // 3` and `(i + 1) // 3`, TVM takes them for the same. Of a dividend that falls
    while an iterator rises, such as `(1 - i) // 2`, it forgets the constant.
    """
    nodes = (node for index in indices for node in walk(index))
    divisions = [
        node for node in nodes if isinstance(node, Binary) and node.op in ("floordiv", "floormod")
    ]
    falling = any(
        coefficient < 0 for node in divisions for coefficient in affine(node.lhs).terms.values()
    )
    return falling or any(
        first.rhs == second.rhs
        and tidy(first.lhs) != tidy(second.lhs)
        and _iterators(first.lhs) & _iterators(second.lhs)
        for first, second in combinations(divisions, 2)
    )


def _iterators(index: Scalar) -> set[str]:
    return {node.name for node in walk(index) if isinstance(node, Var)}


def tidy(index: Scalar) -> Scalar:
    """The index in normal form: its terms in order of appearance, one constant at the end."""
    form = affine(index)
    if any(isinstance(atom, Const) for atom in form.terms):
        return index
    total: Scalar | None = None
    for atom, factor in sorted(form.terms.items(), key=lambda term: term[1] < 0):
        atom = _tidy_below(atom)
        size = atom if abs(factor) == 1 else Binary("mul", atom, Const(abs(factor), "int64"))
        if total is None:
            total = size if factor > 0 else Binary("mul", atom, Const(factor, "int64"))
        else:
            total = Binary("add" if factor > 0 else "sub", total, size)
    if total is None:
        return Const(form.constant, "int64")
    if form.constant == 0:
        return total
    return Binary("add" if form.constant > 0 else "sub", total, Const(abs(form.constant), "int64"))


def _tidy_below(atom: Scalar) -> Scalar:
    match atom:
        case Binary(op="floordiv" | "floormod" | "min" | "max" as op, lhs=lhs, rhs=rhs):
            return Binary(op, tidy(lhs), tidy(rhs))
        case _:
            return atom
