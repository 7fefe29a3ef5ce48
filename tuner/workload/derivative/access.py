"""Inverses of access maps: for which iterations a stage reads a given element of a tensor.

The indices of a read are equations between the element's position, written as places
`@0`, `@1`, …, and the stage's iterators. A quotient `e // c` and a remainder `e % c` are
unknowns of their own, with e = c * quotient + remainder. An equation whose terms are the
digits of a number with mixed radix gives all its unknowns; of any other, that with the
greatest extent is expressed by the rest, which stay free and are summed over. What is not
affine stays as a condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tuner.workload.affine import Affine, Domain, affine, linear
from tuner.workload.expression import Binary, Const, Read, Scalar, Unary, Var, rewrite, walk

_QUOTIENT = "@quotient"


def place(dimension: int) -> Var:
    """The position of an element along a dimension."""
    return Var(f"@{dimension}")


def integer(value: int) -> Const:
    return Const(value, "int64")


def index_of(form: Affine) -> Scalar:
    """A form as people write it: what is subtracted behind what is added."""
    added = [_multiple(atom, factor) for atom, factor in form.terms.items() if factor > 0]
    removed = [_multiple(atom, -factor) for atom, factor in form.terms.items() if factor < 0]
    if form.constant > 0 or not added:
        added.append(integer(form.constant))
    elif form.constant:
        removed.append(integer(-form.constant))
    total, *others = added
    for part in others:
        total = Binary("add", total, part)
    for part in removed:
        total = Binary("sub", total, part)
    return total


def is_index(node: Scalar) -> bool:
    """Whether a scalar is arithmetic on iterators alone, which is exact."""
    return all(
        isinstance(part, Var | Binary | Unary)
        or (isinstance(part, Const) and part.dtype == "int64")
        for part in walk(node)
    )


def _multiple(atom: Scalar, factor: int) -> Scalar:
    return atom if factor == 1 else Binary("mul", integer(factor), atom)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Unknowns that one equation gives: the sum of factor * unknown is `total`."""

    factors: Mapping[str, int]
    total: Affine
    values: Mapping[str, Scalar]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """An iterator's value that must lie in its range, 0 <= value < extent."""

    value: Scalar
    extent: int

    @property
    def conditions(self) -> tuple[Scalar, Scalar]:
        value, extent = self.value, self.extent
        match value:
            case Binary(op="floordiv", lhs=dividend, rhs=Const(value=divisor)):
                value, extent = dividend, extent * int(divisor)
        return Binary("ge", value, integer(0)), Binary("lt", value, integer(extent))


@dataclass(frozen=True, slots=True, kw_only=True)
class Inverse:
    """The iterations that read an element."""

    steps: tuple[Step, ...]  # in order: later ones say what earlier totals are made of
    free: Mapping[str, int]  # unknowns that take all values of their extent
    reaches: tuple[Reach, ...]
    conditions: tuple[Scalar, ...]  # further ones, that hold for these iterations alone

    def at(self, node: Scalar) -> Scalar:
        """A scalar of the stage, as one of the element's position and free unknowns."""
        for step in self.steps:
            node = _substituted(node, step)
        return node


def inverse(read: Read, guards: Iterable[Scalar], extents: Mapping[str, int]) -> Inverse:
    """The iterations of a stage with these extents in which the guards hold and a read gives
    the element of its tensor at `place(0)`, `place(1)`, and so on."""
    return _System(extents).solved(read, guards)


@dataclass
class _System:
    """Equations, and what has been solved of them."""

    extents: Mapping[str, int]
    unknowns: dict[str, int] = field(default_factory=dict)  # extents of those unsolved
    # forms that are 0
    equations: list[Affine] = field(default_factory=list)
    conditions: list[Scalar] = field(default_factory=list)
    reaches: list[Reach] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    parts: dict[tuple[Scalar, int], tuple[Scalar, Scalar]] = field(default_factory=dict)

    def solved(self, read: Read, guards: Iterable[Scalar]) -> Inverse:
        self.unknowns = {name: extent for name, extent in self.extents.items() if extent > 1}
        for name, extent in self.extents.items():
            if extent == 1:
                self._keep(Step(factors={name: 1}, total=Affine({}, 0), values={name: integer(0)}))
        for dimension, index in enumerate(read.indices):
            self._demand(Binary("eq", index, place(dimension)))
        for guard in guards:
            self._demand(guard)
        while self.equations:
            self._solve(min(self.equations, key=lambda form: len(self._unsolved(form))))
        inverse = Inverse(steps=tuple(self.steps), free=self.unknowns, reaches=(), conditions=())
        return replace(
            inverse,
            reaches=tuple(replace(reach, value=inverse.at(reach.value)) for reach in self.reaches),
            conditions=tuple(inverse.at(condition) for condition in self.conditions),
        )

    def _demand(self, condition: Scalar) -> None:
        """Takes a condition, as an equation if it is one of linear forms."""
        match condition:
            case Binary(op="eq", lhs=lhs, rhs=rhs):
                left, right = (linear(self._linearised(side)) for side in (lhs, rhs))
                if left is not None and right is not None:
                    self.equations.append(left - right)
                    return
        self.conditions.append(condition)

    def _unsolved(self, form: Affine) -> dict[str, int]:
        return {name: c for name, c in form.coefficients.items() if name in self.unknowns}

    def _linearised(self, index: Scalar) -> Scalar:
        """The index with unknowns for quotients and remainders of linear forms."""

        def change(node: Scalar) -> Scalar | None:
            match node:
                case Var(name=name) if self.extents.get(name) == 1:
                    return integer(0)
                case Binary(op="floordiv" | "floormod" as op, lhs=lhs, rhs=Const(value=divisor)):
                    form = linear(rewrite(lhs, change))
                    if form is None or not form.terms:
                        return None
                    return self._part(form, int(divisor))[0 if op == "floordiv" else 1]
                case _:
                    return None

        return rewrite(index, change)

    def _part(self, form: Affine, divisor: int) -> tuple[Scalar, Scalar]:
        """Quotient and remainder of a form, as scalars of unknowns."""
        key = (index_of(form), divisor)
        if key not in self.parts:
            extents = {**self.extents, **self.unknowns}
            values = Domain(extents=extents).range_of(form.index)
            least, greatest = values.low // divisor, values.high // divisor
            number = len(self.parts)
            quotient = self._unknown(f"{_QUOTIENT}{number}", greatest - least + 1)
            remainder = self._unknown(f"@remainder{number}", divisor)
            whole = affine(quotient) + Affine({}, least)
            self.equations.append(form - whole.scaled(divisor) - affine(remainder))
            self.parts[key] = (index_of(whole), remainder)
        return self.parts[key]

    def _unknown(self, name: str, extent: int) -> Scalar:
        if extent == 1:
            return integer(0)
        self.unknowns[name] = extent
        return Var(name)

    def _solve(self, equation: Affine) -> None:
        self.equations.remove(equation)
        factors = self._unsolved(equation)
        hidden = {
            node.name
            for atom in equation.terms
            if not isinstance(atom, Var)
            for node in walk(atom)
            if isinstance(node, Var)
        }
        if not factors or hidden & self.unknowns.keys():
            self._note(equation)
            return
        chosen = factors if self._are_digits(factors) else self._longest(factors)
        self._digits(chosen, Affine.of_iterators(chosen, 0) - equation)

    def _note(self, equation: Affine) -> None:
        """Keeps an equation that gives no unknown as a condition."""
        if not equation.terms and not equation.constant:
            return
        sides = [
            index_of(
                Affine(
                    {atom: abs(step) for atom, step in equation.terms.items() if step * sign > 0},
                    max(0, equation.constant * sign),
                )
            )
            for sign in (1, -1)
        ]
        sides.sort(key=lambda side: isinstance(side, Const))
        self.conditions.append(Binary("eq", *sides))

    def _are_digits(self, factors: Mapping[str, int]) -> bool:
        """Whether each sum of these multiples has one way only to come about."""
        below = 0
        for name, factor in sorted(factors.items(), key=lambda item: abs(item[1])):
            if abs(factor) <= below:
                return False
            below += abs(factor) * (self.unknowns[name] - 1)
        return True

    def _longest(self, factors: Mapping[str, int]) -> dict[str, int]:
        name = max(factors, key=lambda name: (self.unknowns[name], -abs(factors[name])))
        return {name: factors[name]}

    def _digits(self, factors: Mapping[str, int], total: Affine) -> None:
        """Solves for unknowns of whose multiples `total` is the sum."""
        # With a negative factor, the distance from the greatest value is the digit.
        value = total
        for name, factor in factors.items():
            if factor < 0:
                value -= Affine({}, factor * (self.unknowns[name] - 1))
        left, values = index_of(value), dict[str, Scalar]()
        order = sorted(factors, key=lambda name: -abs(factors[name]))
        for number, name in enumerate(order):
            size, extent = abs(factors[name]), self.unknowns[name]
            digit = left if size == 1 else Binary("floordiv", left, integer(size))
            if size > 1:
                left = Binary("floormod", left, integer(size))
                if number == len(order) - 1:
                    self.conditions.append(Binary("eq", left, integer(0)))
            mirrored = Affine({}, extent - 1) - affine(digit)
            values[name] = digit if factors[name] > 0 else index_of(mirrored)
            if not name.startswith(_QUOTIENT):  # in its range where what it is made of is
                self.reaches.append(Reach(value=values[name], extent=extent))
        for name in factors:
            del self.unknowns[name]
        self._keep(Step(factors=dict(factors), total=total, values=values))

    def _keep(self, step: Step) -> None:
        self.steps.append(step)
        self.equations = [affine(_substituted(equation.index, step)) for equation in self.equations]


def _substituted(node: Scalar, step: Step) -> Scalar:
    """The scalar with the unknowns of a step replaced, multiples of its total at once."""

    def change(part: Scalar) -> Scalar | None:
        match part:
            case Var(name=name):
                return step.values.get(name)
            case Binary(op="add" | "sub" | "mul") | Unary(op="neg") if is_index(part):
                form = affine(part)
                return index_of(_replaced(form, step, change)) if form.coefficients else None
            case _:
                return None

    return rewrite(node, change)


def _replaced(form: Affine, step: Step, change: Callable[[Scalar], Scalar | None]) -> Affine:
    coefficients = form.coefficients
    (name, factor), *_ = step.factors.items()
    times = coefficients.get(name, 0) // factor
    if any(coefficients.get(other, 0) != times * step.factors[other] for other in step.factors):
        times = 0
    total = step.total.scaled(times) + Affine({}, form.constant)
    for atom, coefficient in form.terms.items():
        if not isinstance(atom, Var):
            total += affine(rewrite(atom, change)).scaled(coefficient)
        elif atom.name not in step.values:
            total += Affine({atom: coefficient}, 0)
        elif not times:
            total += affine(step.values[atom.name]).scaled(coefficient)
    return total
