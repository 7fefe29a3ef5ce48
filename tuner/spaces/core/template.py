"""Knobs of a space that a user writes as a Python function: defined where they are
used, collected by calling it once.

The first call collects: every knob answers with its first value. Later calls apply a
config: every knob answers with its value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from math import isqrt
from typing import TypeVar

from tuner.errors import UsageError
from tuner.spaces.core.space import Combination, Config, Knob, Space, Value

MAX_VALUES = 4096  # of one knob; a search learns nothing about more
Item = TypeVar("Item")


class Knobs:
    """The knobs of one call of a template. Without a config it collects them, with one
    it answers with the config's values."""

    def __init__(self, config: Config | None = None) -> None:
        self._config = config
        self._found: dict[str, Knob] = {}

    def split(
        self, name: str, extent: int, *, parts: int = 2, innermost: int | None = None
    ) -> tuple[int, ...]:
        """Factors of an extent, outermost first: every way to write it as a product of
        `parts` positive integers.

        `innermost` bounds the last factor. Raises UsageError for extents and counts
        below 1, and where there are more than 4096 ways.
        """
        if extent < 1 or parts < 1 or (innermost is not None and innermost < 1):
            raise UsageError(
                f"knob {name!r}: extent {extent}, {parts} parts, innermost {innermost}; each is "
                f"at least 1"
            )
        allowed = (
            factors
            for factors in _factors(extent, parts)
            if innermost is None or factors[-1] <= innermost
        )
        values = sorted(allowed, key=lambda factors: factors[::-1])
        chosen = self._value(name, values)
        assert isinstance(chosen, tuple)
        return chosen

    def choice(self, name: str, values: Sequence[Value]) -> Value:
        """One of the values: integers, texts, or tuples of integers; write them in an
        order in which neighbours are alike."""
        return self._value(name, list(values))

    def integer(self, name: str, values: Sequence[int]) -> int:
        """One of some integers."""
        chosen = self._value(name, list(values))
        assert isinstance(chosen, int)
        return chosen

    def boolean(self, name: str) -> bool:
        return bool(self._value(name, [0, 1]))

    def order(self, name: str, items: Sequence[Item]) -> list[Item]:
        """The items, at most 6, in one of their orders; the first is the order given."""
        if len(items) > 6:
            raise UsageError(
                f"knob {name!r}: {len(items)} items have too many orders; give at most 6"
            )
        chosen = self._value(name, list(permutations(range(len(items)))))
        assert isinstance(chosen, tuple)
        return [items[place] for place in chosen]

    def space(self, name: str) -> Space:
        """The space of the knobs met so far, in one sketch."""
        if not self._found:
            raise UsageError(f"template {name!r} uses no knob; a space needs at least one")
        return Space((Combination(name=name, knobs=tuple(self._found.values())),))

    def unused(self) -> set[str]:
        """Knobs of the config that the call did not use."""
        return set(self._config or ()) - set(self._found) - {"sketch"}

    def _value(self, name: str, values: Sequence[Value]) -> Value:
        if not name or name == "sketch":
            raise UsageError(f"a knob cannot be called {name!r}; give it another name")
        distinct = tuple(dict.fromkeys(values))
        if not distinct or len(distinct) > MAX_VALUES:
            raise UsageError(
                f"knob {name!r} has {len(distinct)} values; a knob has 1 to {MAX_VALUES}"
            )
        knob = self._found.setdefault(name, Knob(name=name, values=distinct))
        if knob.values != distinct:
            raise UsageError(
                f"knob {name!r} is defined twice with different values; give each knob a name "
                f"of its own"
            )
        if self._config is None:
            return distinct[0]
        if name not in self._config:
            raise UsageError(
                f"knob {name!r} is not in the config; a template defines the same knobs at "
                f"every call"
            )
        raw = self._config[name]
        value = tuple(raw) if isinstance(raw, list) else raw
        if value not in distinct:
            raise UsageError(
                f"knob {name!r} has no value {value!r}; it takes {list(distinct)[:16]}"
            )
        return value


def _factors(extent: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (extent,)
        return
    small = [divisor for divisor in range(1, isqrt(extent) + 1) if extent % divisor == 0]
    for factor in dict.fromkeys((*small, *(extent // divisor for divisor in reversed(small)))):
        for rest in _factors(extent // factor, parts - 1):
            yield (factor, *rest)
