"""Affine forms of index expressions, and the ranges of values that indices take.

A form is exact for sums of iterators with constant coefficients. Anything else in it,
such as a quotient or an element of an integer tensor, is an opaque atom whose range is
analysed by itself. Ranges are never too small; atoms count as independent of each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.workload.expression import (
    Binary,
    Cast,
    Const,
    DType,
    Read,
    Scalar,
    Select,
    Unary,
    Var,
    walk,
)
from tuner.workload.intervals import ANY, INTERVALS, Interval
from tuner.workload.scalar_operators import BINARY_OPERATORS, UNARY_OPERATORS


@dataclass(frozen=True, slots=True)
class Affine:
    """The sum of coefficient times atom over `terms`, plus a constant.

    No coefficient is zero. An atom is an iterator, or a scalar that is not affine.
    """

    terms: Mapping[Scalar, int]
    constant: int

    @classmethod
    def of_iterators(cls, coefficients: Mapping[str, int], constant: int) -> Affine:
        """The form with these coefficients of iterators by name."""
        return cls({Var(name): step for name, step in coefficients.items()}, constant)

    @property
    def coefficients(self) -> dict[str, int]:
        """Coefficients of the atoms that are iterators, by name."""
        return {atom.name: step for atom, step in self.terms.items() if isinstance(atom, Var)}

    def coefficient(self, iterator: str) -> int:
        return self.terms.get(Var(iterator), 0)

    @property
    def is_linear(self) -> bool:
        """Whether all atoms are iterators."""
        return all(isinstance(atom, Var) for atom in self.terms)

    @property
    def index(self) -> Scalar:
        """The form as a scalar tree."""
        total: Scalar | None = None
        for atom, factor in self.terms.items():
            term = atom if factor == 1 else Binary("mul", atom, Const(factor, "int64"))
            total = term if total is None else Binary("add", total, term)
        if total is None:
            return Const(self.constant, "int64")
        return Binary("add", total, Const(self.constant, "int64")) if self.constant else total

    def scaled(self, factor: int) -> Affine:
        terms = {atom: step * factor for atom, step in self.terms.items()} if factor else {}
        return Affine(terms, self.constant * factor)

    def __add__(self, other: Affine) -> Affine:
        terms = dict(self.terms)
        for atom, step in other.terms.items():
            terms[atom] = terms.get(atom, 0) + step
        kept = {atom: step for atom, step in terms.items() if step}
        return Affine(kept, self.constant + other.constant)

    def __sub__(self, other: Affine) -> Affine:
        return self + other.scaled(-1)


def affine(node: Scalar) -> Affine:
    """The form of an integer scalar."""
    match node:
        case Const(value=int(value)):
            return Affine({}, int(value))
        case Cast(dtype="int64", arg=arg) if _is_iterator_arithmetic(arg):
            return affine(arg)
        case Unary(op="neg", arg=arg):
            return affine(arg).scaled(-1)
        case Binary(op="add", lhs=lhs, rhs=rhs):
            return affine(lhs) + affine(rhs)
        case Binary(op="sub", lhs=lhs, rhs=rhs):
            return affine(lhs) - affine(rhs)
        case Binary(op="mul", lhs=lhs, rhs=rhs):
            left, right = affine(lhs), affine(rhs)
            if not right.terms:
                return left.scaled(right.constant)
            return Affine({node: 1}, 0) if left.terms else right.scaled(left.constant)
        case _:
            return Affine({node: 1}, 0)


def linear(node: Scalar) -> Affine | None:
    """The form of an index that is affine in iterators alone; None of any other."""
    form = affine(node)
    return form if form.is_linear else None


def _is_iterator_arithmetic(node: Scalar) -> bool:
    """Whether it is arithmetic on 64-bit iterators, which cannot wrap before a cast."""
    return all(isinstance(part, Var | Const | Binary) for part in walk(node))


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """What is known about the iterators and the tensors that indices are made of."""

    extents: Mapping[str, int]  # an iterator i takes the values 0 <= i < extents[i]
    dtypes: Mapping[str, DType] = field(default_factory=dict)  # of tensors, which hold anything

    def range_of(self, node: Scalar) -> Interval:
        """The values of an integer scalar; `ANY` where nothing is known."""
        form = affine(node)
        total = Interval(form.constant, form.constant)
        for atom, factor in form.terms.items():
            total += self._range_of_atom(atom).scaled(factor)
        return total

    def _range_of_atom(self, node: Scalar) -> Interval:
        match node:
            case Var(name=name):
                return Interval(0, self.extents[name] - 1) if name in self.extents else ANY
            case Read(tensor=tensor):
                return INTERVALS.get(self.dtypes.get(tensor, ""), ANY)
            case Cast(dtype=dtype, arg=arg):
                value, limits = self.range_of(arg), INTERVALS.get(dtype, ANY)
                return value if value.is_within(limits) else limits
            case Select(then=then, other=other):
                return self.range_of(then).union(self.range_of(other))
            case Binary(op=op, lhs=lhs, rhs=rhs):
                return BINARY_OPERATORS[op].values(self.range_of(lhs), self.range_of(rhs))
            case Unary(op=op, arg=arg):
                return UNARY_OPERATORS[op].values(self.range_of(arg))
            case _:
                return ANY


def value_range(
    node: Scalar, extents: Mapping[str, int], dtypes: Mapping[str, DType] | None = None
) -> Interval:
    """The values of an integer scalar over 0 <= iterator < extent and any tensor content.

    Without `dtypes` the elements of tensors count as any integer.
    """
    return Domain(extents=extents, dtypes=dtypes or {}).range_of(node)
