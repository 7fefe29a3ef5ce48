"""Calls of a model's libraries on cores of this machine, in confined processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tuner.measure.core_turns import CoreTurns
from tuner.models.arrays import Array
from tuner.models.executors.checking import Checked, run_library
from tuner.models.executors.profile import LONGEST_S, Spent, spent_seconds
from tuner.models.executors.switching import switched_errors
from tuner.models.graph import Graph
from tuner.models.library.library import packed_here


class ConfinedCalls:
    """`LibraryCalls` on some cores."""

    def __init__(self, cores: Sequence[int]) -> None:
        self.cores = cores

    def refuse(self, graph: Graph) -> None:
        """Takes every model."""

    def run(self, library: Path, symbol: str, inputs: Sequence[Array]) -> Checked:
        with CoreTurns().turn(self.cores, alone=True):
            return run_library(library, symbol, inputs, self.cores)

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
        with CoreTurns().turn(self.cores, alone=True):
            return spent_seconds(library, symbol, inputs, settings, self.cores, longest_s, threads)

    def errors(
        self,
        library: Path,
        symbol: str,
        switches: Sequence[Sequence[bool]],
        inputs: Sequence[Sequence[Array]],
        expected: Sequence[Sequence[Array]],
    ) -> Sequence[float]:
        return switched_errors(library, symbol, switches, inputs, expected, self.cores)

    def packed(self, library: Path, symbol: str, constants: Sequence[Array]) -> list[Array]:
        """In this process: the pack function is one that a tuned kernel came with."""
        return packed_here(library, symbol, constants)
