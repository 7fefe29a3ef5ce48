"""Integer intervals and their arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.workload.dtypes import INTEGER_RANGES


@dataclass(frozen=True, slots=True)
class Interval:
    """The integers from `low` to `high`, both included.

    The interval of an operation holds its values for all operands in their intervals.
    Operands are taken to be independent of each other.
    """

    low: int
    high: int

    @property
    def magnitude(self) -> int:
        """The greatest absolute value."""
        return max(abs(self.low), abs(self.high))

    def is_within(self, other: Interval) -> bool:
        return other.low <= self.low and self.high <= other.high

    def is_index_of(self, extent: int) -> bool:
        """Whether each value is a position of a dimension."""
        return self.low >= 0 and self.high < extent

    def scaled(self, factor: int) -> Interval:
        first, second = self.low * factor, self.high * factor
        return Interval(min(first, second), max(first, second))

    def union(self, other: Interval) -> Interval:
        """The smallest interval that holds both."""
        return Interval(min(self.low, other.low), max(self.high, other.high))

    def narrowed(self, low: int | None, high: int | None) -> Interval:
        """The part from `low` to `high`, or all of it if that is empty."""
        least = self.low if low is None else max(self.low, low)
        greatest = self.high if high is None else min(self.high, high)
        return Interval(least, greatest) if least <= greatest else self

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Interval) -> Interval:
        return Interval(self.low - other.high, self.high - other.low)

    def __mul__(self, other: Interval) -> Interval:
        products = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(min(products), max(products))

    def __floordiv__(self, other: Interval) -> Interval:
        """The quotient, rounded down; any integer unless the divisor is one positive number."""
        if other.low != other.high or other.low <= 0:
            return ANY
        return Interval(self.low // other.low, self.high // other.low)

    def __mod__(self, other: Interval) -> Interval:
        """The remainder of `//`; any integer unless the divisor is one positive number."""
        if other.low != other.high or other.low <= 0:
            return ANY
        divisor = other.low
        if self.low // divisor == self.high // divisor:
            return Interval(self.low % divisor, self.high % divisor)
        return Interval(0, divisor - 1)

    def __and__(self, other: Interval) -> Interval:
        """Bits that both have: no more than an operand that is not negative."""
        highest = [operand.high for operand in (self, other) if operand.low >= 0]
        return Interval(0, min(highest)) if highest else ANY

    def __xor__(self, other: Interval) -> Interval:
        if self.low < 0 or other.low < 0:
            return ANY
        return Interval(0, (1 << max(self.high, other.high).bit_length()) - 1)

    def minimum(self, other: Interval) -> Interval:
        return Interval(min(self.low, other.low), min(self.high, other.high))

    def maximum(self, other: Interval) -> Interval:
        return Interval(max(self.low, other.low), max(self.high, other.high))

    def absolute(self) -> Interval:
        low = 0 if self.low <= 0 <= self.high else min(abs(self.low), abs(self.high))
        return Interval(low, self.magnitude)


INTERVALS: Mapping[str, Interval] = {
    "bool": Interval(0, 1),
    **{dtype: Interval(low, high) for dtype, (low, high) in INTEGER_RANGES.items()},
}
ANY = INTERVALS["int64"]  # of a value of which nothing is known
BOOL = INTERVALS["bool"]
