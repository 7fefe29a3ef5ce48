"""The contract of calls: where a model's libraries for CPUs are called and timed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tuner.models.arrays import Array
from tuner.models.executors.checking import Checked
from tuner.models.executors.profile import LONGEST_S, Spent
from tuner.models.graph import Graph


class LibraryCalls(Protocol):
    """Some cores of a machine. All but `refuse` raise ModelRefused where a call fails, and
    DeviceError where the machine is another one and was lost."""

    def refuse(self, graph: Graph) -> None:
        """Raises ModelRefused for a model that cannot be called there."""
        ...

    def run(self, library: Path, symbol: str, inputs: Sequence[Array]) -> Checked:
        """The outputs of a call, and its time."""
        ...

    def spent(
        self,
        library: Path,
        symbol: str,
        inputs: Sequence[Array],
        settings: Sequence[Sequence[int]] | None = None,
        *,
        threads: int = 0,
        longest_s: float = LONGEST_S,
    ) -> Sequence[Spent]:
        """What calls of a profiled library take, with warm caches.

        Under each setting of its switches, in turn; once where it has none. Kernels use
        `threads`, or as many as they were tuned for if that is 0.
        """
        ...

    def errors(
        self,
        library: Path,
        symbol: str,
        switches: Sequence[Sequence[bool]],
        inputs: Sequence[Sequence[Array]],
        expected: Sequence[Sequence[Array]],
    ) -> Sequence[float]:
        """For each setting of a profiled library's switches the greatest error over several
        sets of inputs; `expected` has the outputs of each in float64."""
        ...

    def packed(self, library: Path, symbol: str, constants: Sequence[Array]) -> list[Array]:
        """What a library's pack function gives, as bits."""
        ...
