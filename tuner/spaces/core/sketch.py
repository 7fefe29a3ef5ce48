"""The contract of a sketch: one structure of loop nest for one group, with open knobs."""

from __future__ import annotations

from typing import Protocol, TypeVar

from tuner.spaces.core.space import Config, Knob
from tuner.spaces.program.nest import Nest
from tuner.spaces.rewrite.groups import Group

F_co = TypeVar("F_co", covariant=True)


class Sketch(Protocol[F_co]):
    """One way to nest the loops of a group, on one kind of target.

    F_co is what the target's cost model reads of its sketches.
    """

    @property
    def name(self) -> str:
        """Unique among the sketches of its group; part of the value of the knob `sketch`."""
        ...

    @property
    def group(self) -> Group:
        """The stages that become one loop nest."""
        ...

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """Those with a choice, each named `<group>.<sketch>.<what>`, its default value first."""
        ...

    @property
    def facts(self) -> F_co:
        """The sketch as the cost model of its target sees it."""
        ...

    def nest(self, config: Config) -> Nest:
        """The loop nest of a config that names every knob of this sketch.

        Raises IllegalSchedule where the target has no room for it.
        """
        ...
