"""What the sketches of GPUs share: a group, and knobs for their choices, named after both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from tuner.spaces.core.choice import Choice, open_knobs
from tuner.spaces.core.context import SpaceContext
from tuner.spaces.core.space import Knob
from tuner.spaces.rewrite.groups import Group

G = TypeVar("G", bound=Group)


@dataclass(frozen=True)
class CudaSketch(ABC, Generic[G]):
    """A sketch of one group on a GPU."""

    group: G
    context: SpaceContext

    name: ClassVar[str]

    @property
    def prefix(self) -> str:
        """What the names of its knobs begin with."""
        return f"{self.group.name}.{self.name}"

    @property
    @abstractmethod
    def choices(self) -> tuple[Choice[Any], ...]:
        """All decisions of the sketch, in the order of its knobs."""

    @property
    def knobs(self) -> tuple[Knob, ...]:
        return open_knobs(self.choices)
