"""Affine forms of index expressions, and the ranges of values that indices take.

A form is exact for sums of iterators with constant coefficients. Anything else in it,
such as a quotient or an element of an integer tensor, is an opaque atom whose range is
analysed by itself. Ranges are never too small; atoms count as independent of each other.

A `Domain` may be narrowed by a condition: comparisons of integers become inequalities
of affine forms, which bound the ranges of forms that contain them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from tuner.workload.dtypes import UNSIGNED, ByteFloat, DType
from tuner.workload.expression import (
    Binary,
    BinaryOp,
    Bitcast,
    Cast,
    Const,
    Read,
    Scalar,
    Select,
    Unary,
    Var,
    rewrite,
    walk,
)
from tuner.workload.intervals import ANY, INTERVALS, Interval
from tuner.workload.scalar_operators import BINARY_OPERATORS, UNARY_OPERATORS

MAX_FACTS = 16  # of a domain; further ones are ignored, so that analysis stays fast
# The comparison that holds where another one fails.
NEGATED: Mapping[BinaryOp, BinaryOp] = {
    "lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq",
}  # fmt: skip


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
        case Binary(op="add" | "sub"):
            return _sum(node)
        case Binary(op="mul", lhs=lhs, rhs=rhs):
            left, right = affine(lhs), affine(rhs)
            if not right.terms:
                return left.scaled(right.constant)
            return Affine({node: 1}, 0) if left.terms else right.scaled(left.constant)
        case _:
            return Affine({node: 1}, 0)


def _sum(node: Scalar) -> Affine:
    """The form of a sum, whose terms are gathered at once: copies would take quadratic time."""
    added: list[tuple[int, Scalar]] = []
    while isinstance(node, Binary) and node.op in ("add", "sub"):
        added.append((1 if node.op == "add" else -1, node.rhs))
        node = node.lhs
    first = affine(node)
    terms, constant = dict(first.terms), first.constant
    for sign, operand in reversed(added):
        form = affine(operand)
        constant += sign * form.constant
        for atom, step in form.terms.items():
            terms[atom] = terms.get(atom, 0) + sign * step
            if not terms[atom]:
                del terms[atom]
    return Affine(terms, constant)


def _is_atom(node: Scalar) -> bool:
    """Whether its form is the scalar itself."""
    match node:
        case Var() | Read() | Select() | Bitcast():
            return True
        case Binary(op=op):
            return op not in ("add", "sub", "mul")
        case _:
            return False


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
    facts: tuple[Affine, ...] = ()  # forms that are at least 0, with canonical atoms

    def under(self, condition: Scalar) -> Domain:
        """The domain where a condition holds. What is not understood narrows nothing."""
        added = islice(self._facts(condition), MAX_FACTS - len(self.facts))
        return replace(self, facts=(*self.facts, *added))

    def range_of(self, node: Scalar) -> Interval:
        """The values of an integer scalar; `ANY` where nothing is known."""
        if self._wraps(node):
            return INTERVALS[self._dtype(node) or "uint64"]
        if not self.facts:
            if _is_atom(node):  # a form would hash the whole tree, and each operand again
                return self._range_of_atom(node)
            return self._range_of_form(affine(node))
        form = affine(self._canonical(node))
        values = self._range_of_form(form)
        # Only facts about single leaves may be used below: others bring in new atoms.
        leaves = replace(self, facts=tuple(fact for fact in self.facts if _is_of_leaf(fact)))
        for fact in self.facts:
            for atom, step in fact.terms.items() if not _is_of_leaf(fact) else ():
                # Where form = times * fact + rest and fact >= 0, the rest bounds the form.
                times, remainder = divmod(form.terms.get(atom, 0), step)
                if times and not remainder:
                    rest = leaves._range_of_form(form - fact.scaled(times))
                    bound = (rest.low, None) if times > 0 else (None, rest.high)
                    values = values.narrowed(*bound)
        return values

    def _range_of_form(self, form: Affine) -> Interval:
        total = Interval(form.constant, form.constant)
        for atom, factor in form.terms.items():
            total += self._range_of_atom(atom).scaled(factor)
        return total

    def _narrowed_leaf(self, atom: Scalar, values: Interval) -> Interval:
        """The values of an iterator or a read, narrowed by the facts about it alone."""
        for fact in self.facts:
            if fact.terms.keys() == {atom}:
                step = fact.terms[atom]
                # step * atom + constant >= 0
                if step > 0:
                    values = values.narrowed(-(fact.constant // step), None)
                else:
                    values = values.narrowed(None, fact.constant // -step)
        return values

    def _facts(self, condition: Scalar) -> Iterator[Affine]:
        """Forms that are at least 0 where a condition holds."""
        match condition:
            case Binary(op="and", lhs=lhs, rhs=rhs):
                yield from self._facts(lhs)
                yield from self._facts(rhs)
            case Unary(op="not", arg=arg):
                yield from self._facts_of_negation(arg)
            case Binary(op=op, lhs=lhs, rhs=rhs) if BINARY_OPERATORS[op].is_comparison:
                if not (self._is_exact(lhs) and self._is_exact(rhs)):
                    return
                difference = affine(self._canonical(lhs)) - affine(self._canonical(rhs))
                unit = Affine({}, 1)
                match op:
                    case "ge":
                        yield difference
                    case "gt":
                        yield difference - unit
                    case "le":
                        yield difference.scaled(-1)
                    case "lt":
                        yield difference.scaled(-1) - unit
                    case "eq":
                        yield difference
                        yield difference.scaled(-1)
                    case "ne":
                        # Says something only at the end of a range.
                        values = self.range_of(difference.index)
                        if values.low == 0:
                            yield difference - unit
                        elif values.high == 0:
                            yield difference.scaled(-1) - unit

    def _facts_of_negation(self, condition: Scalar) -> Iterator[Affine]:
        match condition:
            case Binary(op="or", lhs=lhs, rhs=rhs):
                yield from self._facts_of_negation(lhs)
                yield from self._facts_of_negation(rhs)
            case Unary(op="not", arg=arg):
                yield from self._facts(arg)
            case Binary(op=op, lhs=lhs, rhs=rhs) if op in NEGATED:
                yield from self._facts(Binary(NEGATED[op], lhs, rhs))

    def _canonical(self, node: Scalar) -> Scalar:
        """The scalar without conversions of tensors' elements that keep their values."""

        def change(part: Scalar) -> Scalar | None:
            match part:
                case Cast(dtype=dtype, arg=arg) if dtype in INTERVALS:
                    inner = self._canonical(arg)
                    if isinstance(inner, Read):
                        held = INTERVALS.get(self.dtypes.get(inner.tensor, ""))
                        if held is not None and held.is_within(INTERVALS[dtype]):
                            return inner
                    return Cast(dtype, inner)
                case _:
                    return None

        return rewrite(node, change)

    def _is_exact(self, node: Scalar) -> bool:
        """Whether an integer scalar is computed without wrapping around.

        That holds for arithmetic on iterators, which is checked elsewhere, and for
        elements of tensors by themselves.
        """
        node = self._canonical(node)
        if isinstance(node, Read):
            return self.dtypes.get(node.tensor) in INTERVALS
        return all(
            isinstance(part, Var)
            or (isinstance(part, Const | Cast) and part.dtype in INTERVALS)
            or (isinstance(part, Unary) and part.op == "neg")
            or (
                isinstance(part, Binary)
                and BINARY_OPERATORS[part.op].is_integral
                and not BINARY_OPERATORS[part.op].is_comparison
                and not self._wraps(part)
            )
            for part in walk(node)
        )

    def _wraps(self, node: Scalar) -> bool:
        """Whether it is arithmetic of uint32 or uint64, which may wrap around."""
        match node:
            case Binary(op="add" | "sub" | "mul" | "shl") | Unary(op="neg"):
                return self._dtype(node) in UNSIGNED
            case _:
                return False

    def _dtype(self, node: Scalar) -> DType | ByteFloat | None:
        """The dtype of an integer scalar; None where it is not known."""
        match node:
            case Const(dtype=dtype) | Cast(dtype=dtype) | Bitcast(dtype=dtype):
                return dtype
            case Read(tensor=tensor):
                return self.dtypes.get(tensor)
            case Unary(arg=arg) | Select(then=arg) | Binary(lhs=arg):
                return self._dtype(arg)
            case _:
                return None

    def _range_of_atom(self, node: Scalar) -> Interval:
        match node:
            case Var(name=name):
                values = Interval(0, self.extents[name] - 1) if name in self.extents else ANY
                return self._narrowed_leaf(node, values)
            case Read(tensor=tensor):
                values = INTERVALS.get(self.dtypes.get(tensor, ""), ANY)
                return self._narrowed_leaf(node, values)
            case Cast(dtype=dtype, arg=arg):
                value, limits = self.range_of(arg), INTERVALS.get(dtype, ANY)
                return value if value.is_within(limits) else limits
            case Select(cond=cond, then=then, other=other):
                return (
                    self.under(cond)
                    .range_of(then)
                    .union(self.under(Unary("not", cond)).range_of(other))
                )
            case Binary(op=op, lhs=lhs, rhs=rhs):
                return BINARY_OPERATORS[op].values(self.range_of(lhs), self.range_of(rhs))
            case Unary(op=op, arg=arg):
                return UNARY_OPERATORS[op].values(self.range_of(arg))
            case Bitcast(dtype=dtype):
                return INTERVALS.get(dtype, ANY)
            case _:
                return ANY


def _is_of_leaf(fact: Affine) -> bool:
    """Whether the only atom is an iterator or a read."""
    return len(fact.terms) == 1 and all(isinstance(atom, Var | Read) for atom in fact.terms)


def value_range(
    node: Scalar, extents: Mapping[str, int], dtypes: Mapping[str, DType] | None = None
) -> Interval:
    """The values of an integer scalar over 0 <= iterator < extent and any tensor content.

    Without `dtypes` the elements of tensors count as any integer.
    """
    return Domain(extents=extents, dtypes=dtypes or {}).range_of(node)
