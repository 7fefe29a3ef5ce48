"""Affine forms and ranges of indices agree with enumeration."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.workload.affine import Affine, Domain, affine, linear, value_range
from tuner.workload.expression import (
    Binary,
    BinaryOp,
    Cast,
    Const,
    Read,
    Scalar,
    Select,
    Unary,
    Var,
)
from tuner.workload.intervals import ANY, INTERVALS, Interval

EXTENTS = {"i": 4, "j": 3}
TABLE = (-128, -3, 0, 7, 127)  # what the tensor T of int8 may hold

LEAVES = st.one_of(
    st.sampled_from([Var("i"), Var("j"), Read("T", (Var("i"),))]),
    st.integers(-5, 5).map(lambda value: Const(value, "int64")),
)


def _composed(operands: st.SearchStrategy[Scalar]) -> st.SearchStrategy[Scalar]:
    factors = st.integers(-3, 3).map(lambda value: Const(value, "int64"))
    divisors = st.integers(1, 4).map(lambda value: Const(value, "int64"))
    return st.one_of(
        st.builds(
            Binary,
            st.sampled_from(["add", "sub", "mul", "min", "max", "xor", "bitand"]),
            operands,
            operands,
        ),
        st.builds(Binary, st.just("mul"), operands, factors),
        st.builds(Binary, st.sampled_from(["floordiv", "floormod"]), operands, divisors),
        st.builds(Unary, st.just("neg"), operands),
        st.builds(Cast, st.just("int64"), operands),
    )


SCALARS = st.recursive(LEAVES, _composed, max_leaves=6)
COMPARISONS = st.builds(
    Binary,
    st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"]),
    st.recursive(LEAVES, _composed, max_leaves=3),
    LEAVES,
)
CONDITIONS = st.recursive(
    COMPARISONS,
    lambda parts: st.one_of(
        st.builds(Binary, st.sampled_from(["and", "or"]), parts, parts),
        st.builds(Unary, st.just("not"), parts),
    ),
    max_leaves=3,
)
CHOICES = st.one_of(SCALARS, st.builds(Select, CONDITIONS, SCALARS, SCALARS))


def value(node: Scalar, point: Mapping[str, int], element: int) -> int:
    """The integer scalar at a point; every read of T is `element`."""
    match node:
        case Var(name=name):
            return point[name]
        case Const(value=number):
            return int(number)
        case Read():
            return element
        case Cast(arg=arg):
            return value(arg, point, element)
        case Unary(op=op, arg=arg):
            operand = value(arg, point, element)
            return int(not operand) if op == "not" else -operand
        case Select(cond=cond, then=then, other=other):
            return value(then if value(cond, point, element) else other, point, element)
        case Binary(op=op, lhs=lhs, rhs=rhs):
            return combined(op, value(lhs, point, element), value(rhs, point, element))
    raise AssertionError(node)


def combined(op: BinaryOp, a: int, b: int) -> int:
    match op:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul":
            return a * b
        case "floordiv":
            return a // b
        case "floormod":
            return a % b
        case "min":
            return min(a, b)
        case "max":
            return max(a, b)
        case "xor":
            return a ^ b
        case "bitand":
            return a & b
        case "lt":
            return a < b
        case "le":
            return a <= b
        case "gt":
            return a > b
        case "ge":
            return a >= b
        case "eq":
            return a == b
        case "ne":
            return a != b
        case "and":
            return min(a, b)
        case "or":
            return max(a, b)
    raise AssertionError(op)


def points() -> list[dict[str, int]]:
    return [
        dict(zip(EXTENTS, values, strict=True)) for values in product(*map(range, EXTENTS.values()))
    ]


@settings(max_examples=300, deadline=None)
@given(CHOICES)
def test_a_range_holds_every_value(node: Scalar) -> None:
    values = [value(node, point, element) for point in points() for element in TABLE]
    span = value_range(node, EXTENTS, {"T": "int8"})
    assert Interval(min(values), max(values)).is_within(span)
    form = linear(node)
    if form is not None and len(form.terms) <= 1:
        assert span == Interval(min(values), max(values))


@settings(max_examples=300, deadline=None)
@given(SCALARS)
def test_a_form_has_the_value_of_its_scalar(node: Scalar) -> None:
    form = affine(node)
    assert all(form.terms.values()) and Var("k") not in form.terms
    for point in points():
        for element in TABLE:
            total = sum(factor * value(atom, point, element) for atom, factor in form.terms.items())
            assert total + form.constant == value(node, point, element)
            assert value(form.index, point, element) == value(node, point, element)


@settings(max_examples=500, deadline=None)
@given(CHOICES, CONDITIONS, CONDITIONS)
def test_a_range_under_conditions_holds_every_value_there(
    node: Scalar, first: Scalar, second: Scalar
) -> None:
    domain = Domain(extents=EXTENTS, dtypes={"T": "int8"}).under(first).under(second)
    span = domain.range_of(node)
    for point in points():
        for element in TABLE:
            if value(first, point, element) and value(second, point, element):
                assert span.low <= value(node, point, element) <= span.high


def _number(number: int) -> Const:
    return Const(number, "int64")


@pytest.mark.parametrize(
    ("condition", "node", "span"),
    [
        # The iterator, a form of it, and a form that contains the compared one.
        (Binary("gt", Var("i"), _number(0)), Binary("sub", Var("i"), _number(1)), (0, 2)),
        (Binary("lt", Binary("mul", _number(2), Var("i")), _number(5)), Var("i"), (0, 2)),
        (Binary("ge", Var("i"), Var("j")), Binary("sub", Var("i"), Var("j")), (0, 3)),
        (Binary("eq", Var("i"), _number(2)), Binary("floordiv", Var("i"), _number(2)), (1, 1)),
        (Binary("ne", Var("i"), _number(0)), Var("i"), (1, 3)),
        (Unary("not", Binary("eq", Var("i"), _number(3))), Var("i"), (0, 2)),
        (
            Unary(
                "not",
                Binary(
                    "or", Binary("lt", Var("i"), _number(1)), Binary("gt", Var("j"), _number(0))
                ),
            ),
            Binary("sub", Var("i"), Var("j")),
            (1, 3),
        ),
        # An element of a tensor, through conversions that keep its value.
        (
            Binary("ge", Cast("int32", Read("T", (Var("i"),))), Const(5, "int32")),
            Cast("int64", Cast("int32", Read("T", (Var("i"),)))),
            (5, 127),
        ),
        # One alternative of two, an element of another place, a contradiction.
        (
            Binary("or", Binary("gt", Var("i"), _number(0)), Binary("gt", Var("j"), _number(0))),
            Var("i"),
            (0, 3),
        ),
        (Binary("ge", Read("T", (Var("j"),)), _number(5)), Read("T", (Var("i"),)), (-128, 127)),
        (Binary("lt", Var("i"), _number(0)), Var("i"), (0, 3)),
    ],
)
def test_a_condition_narrows_what_it_compares(
    condition: Scalar, node: Scalar, span: tuple[int, int]
) -> None:
    domain = Domain(extents=EXTENTS, dtypes={"T": "int8"})
    assert domain.under(condition).range_of(node) == Interval(*span)


def test_arithmetic_that_may_wrap_around_narrows_nothing() -> None:
    """The sum of an int32 element and 1 is negative for the greatest element."""
    domain = Domain(extents=EXTENTS, dtypes={"T": "int32"})
    following = Binary("add", Read("T", (Var("i"),)), Const(1, "int32"))
    narrowed = domain.under(Binary("gt", following, Const(0, "int32")))
    assert narrowed.range_of(Read("T", (Var("i"),))) == INTERVALS["int32"]


def test_floating_point_comparisons_narrow_nothing() -> None:
    domain = Domain(extents=EXTENTS, dtypes={"X": "float32"})
    read = Read("X", (Var("i"),))
    narrowed = domain.under(Binary("gt", read, Const(0.5, "float32")))
    assert narrowed.facts == ()


def test_forms_are_added_and_scaled() -> None:
    first, second = Affine.of_iterators({"i": 2, "j": -1}, 3), Affine.of_iterators({"j": 1}, 1)
    assert first + second == Affine.of_iterators({"i": 2}, 4)
    assert first - first == Affine({}, 0) == first.scaled(0)
    assert first.scaled(-2).coefficients == {"i": -4, "j": 2}
    assert (first.coefficient("i"), first.coefficient("k")) == (2, 0)


def test_only_forms_of_iterators_are_linear() -> None:
    quotient = Binary("floordiv", Var("i"), Const(2, "int64"))
    assert linear(Binary("add", Var("i"), quotient)) is None
    assert linear(Unary("neg", Var("i"))) == Affine.of_iterators({"i": -1}, 0)


@pytest.mark.parametrize(
    ("node", "span"),
    [
        (Var("unknown"), ANY),
        (Read("T", (Var("i"),)), INTERVALS["int8"]),
        (Read("U", (Var("i"),)), ANY),
        (Cast("int8", Binary("mul", Var("i"), Const(100, "int64"))), INTERVALS["int8"]),
        (Binary("lt", Var("i"), Var("j")), Interval(0, 1)),
        (Binary("floordiv", Var("i"), Var("j")), ANY),
    ],
)
def test_what_is_known_of_other_scalars(node: Scalar, span: Interval) -> None:
    assert value_range(node, EXTENTS, {"T": "int8"}) == span
