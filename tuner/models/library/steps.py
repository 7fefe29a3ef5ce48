"""What a call of a model consists of, for executors of every kind."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.models.library.memory import Place


@dataclass(frozen=True, kw_only=True)
class Step:
    """The call of one kernel."""

    kernel: int  # position among the kernels
    buffers: tuple[Place, ...]  # its arguments in order
    switch: Switch | None = None


@dataclass(frozen=True, kw_only=True)
class Switch:
    """Calls that take a step's place, by one byte of the last input: 1 for the first."""

    byte: int  # its place in the input
    others: tuple[Step, ...]


@dataclass(frozen=True, kw_only=True)
class Move:
    """Bytes copied from one place to another."""

    source: Place
    destination: Place
    nbytes: int


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """Steps that are repeated, with the copies of states and of slices that are not aligned."""

    count: int
    before: tuple[Move, ...]  # once
    condition: Place | None  # a bool, without which no further iteration begins
    reads: tuple[Move, ...]  # at the begin of each iteration
    steps: tuple[Steps, ...]
    writes: tuple[Move, ...]  # at its end


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Steps of which a bool chooses those that are done."""

    condition: Place
    then: tuple[Steps, ...] | Failure
    other: tuple[Steps, ...] | Failure


@dataclass(frozen=True, kw_only=True)
class Concurrent:
    """Steps in lanes that run side by side, each lane on a thread of its own."""

    lanes: tuple[tuple[Steps, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The call ends with the error code for an extent."""

    reason: str


Steps = Step | Move | Repeat | Choice | Concurrent


@dataclass(frozen=True, kw_only=True)
class Copy:
    """An output that is another tensor: an input, a constant, or another output."""

    output: int
    source: Place
    nbytes: int


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """An input that may have only one value: that of a constant."""

    position: int  # among the inputs
    place: Place
    nbytes: int
