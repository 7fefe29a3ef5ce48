"""What an element of a tensor gets from a stage that reads it: a sum over iterations.

The weight of an iteration is summed over those that read the element. Where conditions
say no more than that a read stays inside its tensor, and the weight is a product with
that read, padding by zeros takes their place: the sum is a plain product again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

from tuner.workload.affine import Affine, Domain, affine
from tuner.workload.bounds import is_inside
from tuner.workload.derivative.access import (
    Inverse,
    Reach,
    index_of,
    integer,
    inverse,
    is_index,
    place,
)
from tuner.workload.derivative.algebra import ZERO, is_number, real, times
from tuner.workload.dtypes import DType
from tuner.workload.expression import (
    Binary,
    Cast,
    Const,
    Read,
    Scalar,
    Select,
    Stage,
    Tensor,
    Unary,
    Var,
    rewrite,
    walk,
)
from tuner.workload.scalar_operators import identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A summand of a tensor's derivative: the sum of `body` over the free iterators."""

    body: Scalar  # of the element at `place(0)`, `place(1)`, …
    free: Mapping[str, int]  # extents of the iterators that are summed over


def term(read: Read, weight: Scalar, stage: Stage, tensors: Mapping[str, Tensor]) -> Term | None:
    """The sum of a weight over the stage's iterations that read an element.

    None where no iteration counts.
    """
    guards, value = _unguarded(weight)
    inverted = inverse(read, guards, stage.extents)
    shape = tensors[read.tensor].shape
    extents = {place(d).name: extent for d, extent in enumerate(shape)} | dict(inverted.free)
    return _Assembly(inverted, extents, tensors).term(value)


def _unguarded(weight: Scalar) -> tuple[tuple[Scalar, ...], Scalar]:
    """The conditions without which a weight is zero, and the weight where they hold."""
    guards: list[Scalar] = []
    while isinstance(weight, Select) and is_number(weight.other, 0):
        guards += _conjuncts(weight.cond)
        weight = weight.then
    return tuple(guards), weight


def _conjuncts(condition: Scalar) -> tuple[Scalar, ...]:
    match condition:
        case Binary(op="and", lhs=lhs, rhs=rhs):
            return (*_conjuncts(lhs), *_conjuncts(rhs))
        case _:
            return (condition,)


@dataclass(frozen=True, slots=True)
class _Assembly:
    inverted: Inverse
    extents: Mapping[str, int]  # of places and free iterators
    tensors: Mapping[str, Tensor]

    @property
    def domain(self) -> Domain:
        return Domain(extents=self.extents, dtypes=self.dtypes)

    @property
    def dtypes(self) -> dict[str, DType]:
        return {name: tensor.dtype for name, tensor in self.tensors.items()}

    def term(self, value: Scalar) -> Term | None:
        conditions = [self._settled(condition) for condition in self.inverted.conditions]
        value = self._settled(self.inverted.at(value))
        implied: set[Scalar] = set()
        for reach in self.inverted.reaches:
            settled = replace(reach, value=self._simplified(reach.value))
            conditions += settled.conditions
            if self._is_implied(settled, value):
                implied.update(settled.conditions)
        needed = []
        for condition in dict.fromkeys(conditions):
            holds = self._holds(condition)
            if holds is False:
                return None
            if holds is None and condition not in implied:
                needed.append(condition)
        body = value
        if needed:
            body = Select(reduce(lambda a, b: Binary("and", a, b), needed), value, ZERO)
        return self._summed(body)

    def _summed(self, body: Scalar) -> Term:
        """The term; over iterators that nothing depends on the sum is a multiple."""
        used = {node.name for node in walk(body) if isinstance(node, Var)}
        idle = prod(extent for name, extent in self.inverted.free.items() if name not in used)
        free = {name: extent for name, extent in self.inverted.free.items() if name in used}
        return Term(body=times(body, real(idle)), free=free)

    def _settled(self, node: Scalar) -> Scalar:
        return self._padded(self._simplified(node))

    def _simplified(self, node: Scalar) -> Scalar:
        """The scalar with quotients and remainders of sums taken apart where that is exact."""

        def change(part: Scalar) -> Scalar | None:
            match part:
                case Binary(op="floordiv" | "floormod" as op, lhs=lhs, rhs=Const(value=value)):
                    inner = rewrite(lhs, change)
                    return self._divided(op == "floordiv", inner, int(value)) or Binary(
                        op, inner, part.rhs
                    )
                case _:
                    return None

        return rewrite(node, change)

    def _divided(self, as_quotient: bool, index: Scalar, divisor: int) -> Scalar | None:
        if not is_index(index):
            return None
        form = affine(index)
        whole = {a: step // divisor for a, step in form.terms.items() if step % divisor == 0}
        rest = Affine(
            {a: step for a, step in form.terms.items() if step % divisor}, form.constant % divisor
        )
        if not self.domain.range_of(rest.index).is_index_of(divisor):
            return None
        return index_of(Affine(whole, form.constant // divisor) if as_quotient else rest)

    def _padded(self, node: Scalar) -> Scalar:
        """The scalar with reads kept inside their tensors: where conditions fail they may leave."""

        def change(part: Scalar) -> Scalar | None:
            if not isinstance(part, Read):
                return None
            tensor = self.tensors[part.tensor]
            inner = replace(part, indices=tuple(rewrite(i, change) for i in part.indices))
            if is_inside(inner, tensor.shape, self.extents, self.dtypes):
                return replace(inner, pad=None)
            if part.pad is not None:
                return inner
            if tensor.dtype == "bool":  # cannot be padded
                return replace(
                    inner,
                    indices=tuple(
                        Binary("max", Binary("min", index, integer(extent - 1)), integer(0))
                        for index, extent in zip(inner.indices, tensor.shape, strict=True)
                    ),
                )
            return replace(inner, pad=identity("sum", tensor.dtype))

        return rewrite(node, change)

    def _is_implied(self, reach: Reach, value: Scalar) -> bool:
        """Whether the value is zero anyway where an iterator leaves its range."""

        def leaves(read: Read) -> bool:
            shape = self.tensors[read.tensor].shape
            return (read.pad is not None and is_number(read.pad, 0)) and any(
                index == reach.value and extent <= reach.extent
                for index, extent in zip(read.indices, shape, strict=True)
            )

        return _is_polynomial(value) and _vanishes(value, leaves)

    def _holds(self, condition: Scalar) -> bool | None:
        """Whether a comparison of indices holds always, or never; None where it depends."""
        match condition:
            case Binary(op="eq" | "ge" | "lt" as op, lhs=lhs, rhs=rhs) if is_index(
                lhs
            ) and is_index(rhs):
                form = affine(lhs) - affine(rhs)
            case _:
                return None
        values = self.domain.range_of(form.index)
        always = {
            "eq": values.low == values.high == 0,
            "ge": values.low >= 0,
            "lt": values.high < 0,
        }
        never = {
            "eq": values.low > 0 or values.high < 0,
            "ge": values.high < 0,
            "lt": values.low >= 0,
        }
        return True if always[op] else False if never[op] else None


def _is_polynomial(node: Scalar) -> bool:
    """Whether a scalar is finite wherever the elements that it reads are."""
    match node:
        case Read() | Const():
            return True
        case Cast(dtype=dtype, arg=arg):
            return "float" in dtype and _is_polynomial(arg)
        case Unary(op="neg", arg=arg):
            return _is_polynomial(arg)
        case Binary(op="add" | "sub" | "mul", lhs=lhs, rhs=rhs):
            return _is_polynomial(lhs) and _is_polynomial(rhs)
        case Select(then=then, other=other):
            return _is_polynomial(then) and _is_polynomial(other)
        case _:
            return False


def _vanishes(node: Scalar, is_zero: Callable[[Read], bool]) -> bool:
    """Whether a polynomial is zero where these reads are."""
    match node:
        case Read():
            return is_zero(node)
        case Const(value=value):
            return value == 0
        case Cast(arg=arg) | Unary(arg=arg):
            return _vanishes(arg, is_zero)
        case Binary(op="mul", lhs=lhs, rhs=rhs):
            return _vanishes(lhs, is_zero) or _vanishes(rhs, is_zero)
        case Binary(lhs=lhs, rhs=rhs) | Select(then=lhs, other=rhs):
            return _vanishes(lhs, is_zero) and _vanishes(rhs, is_zero)
        case _:
            return False
