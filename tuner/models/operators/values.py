"""Values: the tensors of a model as operators see them.

A value has a logical shape and a view of the tensor that stores it: transposing, slicing
and broadcasting make another view and no node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from tuner.models.graph import Array
from tuner.models.operators.formats import Format
from tuner.models.operators.scalars import Elem, Operand, clamp, constant, index, iterator, literal
from tuner.workload.dtypes import COMPUTED_IN, FLOATS, DType
from tuner.workload.expression import Binary, Cast, Const, Read, Scalar, Unary, Var, substitute

if TYPE_CHECKING:
    from tuner.models.operators.builder import GraphBuilder

COMPARED_BYTES = 1 << 12  # of constants whose contents are looked at


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A tensor of the model as operators see it.

    `access` gives the indices into the stored tensor, with `Var("0")`, `Var("1")`, ... for
    the logical indices. A constant is an array (`array`), and has no stored tensor until
    a node reads it.
    """

    builder: GraphBuilder
    shape: tuple[int, ...]
    dtype: DType
    tensor: str = ""
    storage: tuple[int, ...] = ()
    access: tuple[Scalar, ...] = ()
    array: Array | None = None
    format: Format | None = None  # of the numbers, where `dtype` only holds them
    # How many elements of some dimensions are there when the model runs, by dimension: an
    # int64 scalar, at most the extent. What lies behind them has no meaning.
    counts: Mapping[int, Value] = field(default_factory=dict)
    # What integers that are computed from extents may be. None: anything.
    limits: Limits | None = None
    # How the numbers came about, as far as an operator behind can use it.
    made: Integers | Scaled | Clipped | PerIteration | Written | None = None

    @property
    def integers(self) -> Integers | None:
        """The integers that real numbers were made of. None: of other numbers."""
        return self.made if isinstance(self.made, Integers) else None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def computed_in(self) -> DType:
        return COMPUTED_IN.get(self.dtype, self.dtype)

    def __getitem__(self, indices: Operand | tuple[Operand, ...]) -> Elem:
        """The element at logical indices, which must lie inside."""
        return self._read(indices, pad=None)

    def guarded(self, *indices: Operand) -> Elem:
        """The element at logical indices, and some value of no meaning outside. For the
        branches of a condition."""
        if self.dtype == "bool":  # has no padding
            inside = (
                _clamped(index(place), extent)
                for place, extent in zip(indices, self.shape, strict=True)
            )
            return self._read(tuple(inside), pad=None)
        return self._read(indices, pad=0)

    def padded(self, *indices: Operand, pad: float) -> Elem:
        """The element at logical indices, `pad` outside of the tensor."""
        return (self if self.whole else self.materialized())._read(indices, pad=pad)

    def _read(self, indices: Operand | Sequence[Operand], pad: float | None) -> Elem:
        places = indices if isinstance(indices, tuple) else (indices,)
        if len(places) != self.rank:
            raise IndexError(f"{len(places)} indices for a tensor of rank {self.rank}")
        number = 0 if not self.elements else self.uniform
        if number is not None:
            return constant(number, self.dtype)
        value = self.builder.stored(self)
        logical: dict[str, Scalar] = {
            str(number): index(place).node for number, place in enumerate(places)
        }
        inside = tuple(_folded(substitute(place, logical)) for place in value.access)
        padding = None if pad is None else literal(pad, value.dtype)
        read = Read(value.tensor, inside, padding)
        wide = value.computed_in
        return Elem(read if wide == value.dtype else Cast(wide, read), wide)

    def number(self, places: tuple[Operand, ...], *, guarded: bool = False) -> Elem:
        """The element at logical indices, computed from the integer that stands for it
        where there is one, so that no real numbers need be stored. With `guarded` as
        `guarded` has it."""
        integers = None if self.array is not None else self.integers
        whole = self if integers is None else integers.value
        element = whole.guarded(*places) if guarded else whole[places]
        return element if integers is None else integers.real(element, places)

    @property
    def uniform(self) -> float | int | bool | None:
        """The number that a constant has at all its places; None for any other."""
        if self.array is None or not self.array.size:
            return None
        spread = not any(self.array.strides)  # one number in memory
        if not spread and self.array.size > COMPARED_BYTES:
            return None
        first = self.array.reshape(-1)[0]
        if first != first:  # the notation has no literal for NaN
            return None
        same = spread or ((self.array == first).all() and self._has_one_sign())
        return first.item() if same else None

    def _has_one_sign(self) -> bool:
        """Of a constant of equal numbers: 0 and -0 are two."""
        if self.array is None or self.dtype not in FLOATS:
            return True
        negative = np.signbit(self.array)
        return bool(negative.all() or not negative.any())

    @property
    def order(self) -> tuple[int, ...] | None:
        """Which logical dimension each stored one is, where the view only permutes; units
        that were added or dropped do not count. None for any other view."""
        order = []
        for place, extent in zip(self.access, self.storage, strict=True):
            if isinstance(place, Var) and self.shape[int(place.name)] == extent:
                order.append(int(place.name))
            elif not (isinstance(place, Const) and extent == 1):
                return None
        missing = set(range(self.rank)) - set(order)
        if len(set(order)) != len(order) or any(self.shape[number] != 1 for number in missing):
            return None
        return tuple(order)

    @property
    def whole(self) -> bool:
        """Whether logical indices lie outside just where the stored tensor's do."""
        order = self.order
        return (
            self.array is None and order is not None and len(order) == len(self.access) == self.rank
        )

    @property
    def is_all_of_its_tensor(self) -> bool:
        """Whether each element of the stored tensor is one of the view's, perhaps often."""
        moving = []
        for place, extent in zip(self.access, self.storage, strict=True):
            if isinstance(place, Var) and self.shape[int(place.name)] == extent:
                moving.append(place.name)
            elif extent != 1:
                return False
        return len({*moving}) == len(moving)

    def view(self, shape: Sequence[int], access: Callable[..., Sequence[Operand]]) -> Value:
        """The value whose element at indices i is this one's at `access(*i)`, which lies
        inside for all of them."""
        if 0 in shape:
            return self.builder.constant(np.empty(tuple(shape)), self.dtype)
        if self.array is not None:
            raise TypeError("a constant's view is another array")
        places = access(*(iterator(str(number)) for number in range(len(shape))))
        logical: dict[str, Scalar] = {
            str(number): index(place).node for number, place in enumerate(places)
        }
        return replace(
            self,
            shape=tuple(shape),
            access=tuple(_folded(substitute(place, logical)) for place in self.access),
            counts={},
            limits=None,
            made=self.integers and self.integers.viewed(shape, access),
        )

    def materialized(self, order: Sequence[int] | None = None) -> Value:
        """The value stored as a tensor of its own, in the given order of its dimensions
        (default: as they are)."""
        return self.builder.stored_copy(self, tuple(order or range(self.rank)))


@dataclass(frozen=True, slots=True, eq=False)
class Integers:
    """Integers that stand for real numbers: `real = scale * (integer - zero)`, each with the
    scale and zero point of all, or of its index along a dimension."""

    value: Value  # int8, uint8 or, as biases are, int32; of the shape of the real numbers
    scale: Value  # float32
    zero: Value | None  # of the integers' dtype; None: 0
    axis: int | None  # of a vector of scales and zero points; None: one for all

    def real(self, integer: Elem, places: Sequence[Operand]) -> Elem:
        """The number that the integer at some places stands for."""
        number = self.centred(integer, places)
        scale = self.parameter(self.scale, places)
        return Elem(Cast(scale.dtype, number.node), scale.dtype) * scale

    def centred(self, integer: Elem, places: Sequence[Operand]) -> Elem:
        """The integer less its zero point."""
        return integer if self.origin == 0 else integer - self.parameter(self.zero, places)

    def parameter(self, vector: Value | None, places: Sequence[Operand]) -> Elem:
        """The scale or zero point of some places, from its tensor."""
        assert vector is not None, "a zero point that is left out is 0"
        vector = vector.builder.stored(vector)
        place = constant(0, "int64") if self.axis is None else index(places[self.axis])
        return vector[tuple(place for _ in vector.shape)]

    def viewed(
        self, shape: Sequence[int], access: Callable[..., Sequence[Operand]]
    ) -> Integers | None:
        """Of a view of the numbers; None where they are constant, or have several scales."""
        if self.axis is not None or self.value.array is not None:
            return None
        return replace(self, value=self.value.view(shape, access))

    @property
    def origin(self) -> int | None:
        """The zero point of all, where it is known."""
        if self.zero is None:
            return 0
        array = self.zero.array
        if array is None or not (array == array.reshape(-1)[:1]).all():
            return None
        return int(array.reshape(-1)[0])


@dataclass(frozen=True, slots=True, eq=False)
class Scaled:
    """A product with constants: a rounding behind it has them multiplied with its own."""

    value: Value
    factor: Value  # float32, a vector of the dimension, or one number
    axis: int


@dataclass(frozen=True, slots=True, eq=False)
class Clipped:
    """Numbers between bounds: a rounding behind it may have the same."""

    value: Value
    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class PerIteration:
    """Rows of a constant table: in each iteration of a loop its own, known at import."""

    number: Value  # of the iteration, a scalar
    rows: Array  # [iterations, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """A tensor of which each iteration of a loop replaces a slice, at a place known at import:
    slice `start + step * t` in iteration t, of all that are as large as the new content."""

    number: Value  # of the iteration, a scalar
    whole: Value  # the tensor before
    content: Value
    start: int
    step: int
    # Whether 0 was added to the whole result, whose new content is never -0.
    zero_added: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Limits:
    """What integers that are computed at run time from extents may be, element by element.

    `low` and `high` have the shape of the integers, `numbers` has a scalar for each of
    them, row-major. Equal elements of several tensors have one scalar.
    """

    low: Array
    high: Array
    numbers: tuple[Value, ...]


def _clamped(place: Elem, extent: int) -> Elem:
    return clamp(place, 0, extent - 1)


def _folded(place: Scalar) -> Scalar:
    """Index arithmetic without neutral operands, after a substitution."""
    match place:
        case Binary(op=op, lhs=lhs, rhs=rhs):
            left, right = Elem(_folded(lhs), "int64"), Elem(_folded(rhs), "int64")
            match op:
                case "add":
                    return (left + right).node
                case "sub":
                    return (left - right).node
                case "mul":
                    return (left * right).node
                case "floordiv":
                    return (left // right).node
                case "floormod":
                    return (left % right).node
                case _:
                    return Binary(op, left.node, right.node)
        case Unary(op=unary_op, arg=arg):
            return Unary(unary_op, _folded(arg))
        case _:
            return place
