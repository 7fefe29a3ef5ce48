"""How copies to shared memory overlap with computing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Overlap(Enum):
    """How copies run ahead of the computing; the value is the word that configs hold."""

    NONE = "none"
    REGISTERS = "registers"  # loads go to registers first, and on when a box is free
    ASYNC = "async"  # by cp.async, which needs no registers


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipelining:
    """The overlap of copies with computing."""

    overlap: Overlap
    stages: int = 2  # boxes of each operand in shared memory

    @property
    def stored(self) -> str:
        """The pipelining as configs hold it."""
        return self.overlap.value if self.stages == 2 else f"{self.overlap.value} {self.stages}"


UNPIPELINED = Pipelining(overlap=Overlap.NONE)


def pipelinings(*, asynchronous: bool, deepest: int = 2) -> tuple[Pipelining, ...]:
    """All that an architecture offers, with up to `deepest` boxes where it copies
    asynchronously."""
    plain = (UNPIPELINED, Pipelining(overlap=Overlap.REGISTERS))
    stages = range(2, deepest + 1) if asynchronous else ()
    return (*plain, *(Pipelining(overlap=Overlap.ASYNC, stages=count) for count in stages))
