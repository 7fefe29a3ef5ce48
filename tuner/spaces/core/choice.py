"""A sketch's declaration of one knob: what it means, and how its values are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from tuner.spaces.core.roles import KnobRole
from tuner.spaces.core.space import Config, Knob, Value

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Choice(Generic[T]):
    """Values of the sketch's own type, side by side with what configs hold for them.

    The first value is the default. A choice of one value is no knob: configs do not
    mention it.
    """

    owner: str  # "<group>.<sketch>"
    role: KnobRole
    values: tuple[T, ...]
    stored: tuple[Value, ...]  # one for each of `values`, all different
    subject: str = ""  # which of several knobs of this role: an axis, a read, a stage

    @cached_property
    def name(self) -> str:
        """As configs, tables and the database have it."""
        return f"{self.owner}.{self.role.value}{self.subject}"

    @property
    def is_open(self) -> bool:
        """Whether there is anything to choose."""
        return len(self.values) > 1

    @cached_property
    def knob(self) -> Knob:
        return Knob(name=self.name, values=self.stored)

    def of(self, config: Config) -> T:
        """The value that a config chooses; the config names every open choice."""
        return self._by_stored[config[self.name]] if self.is_open else self.values[0]

    @cached_property
    def _by_stored(self) -> dict[Value, T]:
        return dict(zip(self.stored, self.values, strict=True))


def choice(
    owner: str,
    role: KnobRole,
    values: Iterable[T],
    store: Callable[[T], Value],
    *,
    subject: str = "",
) -> Choice[T]:
    """A choice whose stored values are made from its values one by one."""
    values = tuple(values)
    stored = tuple(map(store, values))
    return Choice(owner=owner, role=role, values=values, stored=stored, subject=subject)


def open_knobs(choices: Iterable[Choice[T]]) -> tuple[Knob, ...]:
    """The knobs of the choices that leave something open, in their order."""
    return tuple(declared.knob for declared in choices if declared.is_open)
