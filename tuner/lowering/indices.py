"""Index arithmetic in one shape: a sum of terms in order of appearance and a constant.

Pure tree rewriting; iterators that cancel out are gone afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from tuner.workload.affine import affine
from tuner.workload.expression import Binary, Const, Scalar, Var, walk

_BELOW_ANY = -(2**30)


def without_cancelled(index: Scalar) -> Scalar:
    """The index as it stands, tidied where an iterator in it cancels out (`i - i`): TVM
    divides by its coefficient, 0."""
    tidied = tidy(index)
    return opaque(index if _iterators(tidied) == _iterators(index) else tidied)


def opaque(index: Scalar) -> Scalar:
    """The index, hidden from TVM's analysis of iterators where parts of an iterator may
    cancel out (`i mod 3 - i`): there it divides by their coefficient, 0. No index is
    below the bound, so later passes drop the comparison."""
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
    """Whether TVM makes other indices of an access's where it joins them to one.

    Where one divides by the same number in two places that share an iterator and
    differ, as `(i + 2) // 3` and `(i + 1) // 3`, it takes these for the same; of what
    falls while an iterator rises, as `(1 - i) // 2`, it forgets the constant.
    """
    nodes = (node for index in indices for node in walk(index))
    found = [
        node for node in nodes if isinstance(node, Binary) and node.op in ("floordiv", "floormod")
    ]
    falling = any(
        coefficient < 0 for node in found for coefficient in affine(node.lhs).terms.values()
    )
    return falling or any(
        one.rhs == other.rhs
        and tidy(one.lhs) != tidy(other.lhs)
        and _iterators(one.lhs) & _iterators(other.lhs)
        for one, other in combinations(found, 2)
    )


def _iterators(index: Scalar) -> set[str]:
    return {found.name for found in walk(index) if isinstance(found, Var)}


def tidy(index: Scalar) -> Scalar:
    """The index as a sum of its terms in order of appearance with one constant at the end."""
    form = affine(index)
    if any(isinstance(atom, Const) for atom in form.terms):
        return index
    found: Scalar | None = None
    for atom, factor in sorted(form.terms.items(), key=lambda term: term[1] < 0):
        atom = _tidy_below(atom)
        size = atom if abs(factor) == 1 else Binary("mul", atom, Const(abs(factor), "int64"))
        if found is None:
            found = size if factor > 0 else Binary("mul", atom, Const(factor, "int64"))
        else:
            found = Binary("add" if factor > 0 else "sub", found, size)
    if found is None:
        return Const(form.constant, "int64")
    if form.constant == 0:
        return found
    return Binary("add" if form.constant > 0 else "sub", found, Const(abs(form.constant), "int64"))


def _tidy_below(atom: Scalar) -> Scalar:
    match atom:
        case Binary(op="floordiv" | "floormod" | "min" | "max" as op, lhs=lhs, rhs=rhs):
            return Binary(op, tidy(lhs), tidy(rhs))
        case _:
            return atom
