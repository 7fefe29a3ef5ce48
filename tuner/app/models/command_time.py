"""The seconds of a whole command on a model: reading, check, tuning, export, all inside."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tuner.models.graph import Graph
from tuner.models.kernel_race import is_affordable, race_s

# Seconds of an export: the model's executor compiled and linked twice, two processes that
# run it, its profile of at most two seconds, and the files.
_EXPORT_S = 9.0
_KERNEL_S = 0.06  # of each kernel's object, packed and renamed, in both libraries
_BYTE_S = 1 / 25e6  # of each byte of constants: packed, written, linked and hashed
_LEAST_S = 0.1  # of tuning, which then gives each kernel a single trial


@dataclass(kw_only=True)
class CommandTime:
    """The time of a command, from when this was made; without a bound for None."""

    seconds: float | None
    clock: Callable[[], float] = time.monotonic
    begin_s: float = field(init=False)
    evaluation_s: float = 0.0  # of one evaluation of the model by ONNX's evaluator

    def __post_init__(self) -> None:
        self.begin_s = self.clock()

    @property
    def left_s(self) -> float | None:
        return None if self.seconds is None else self.seconds - (self.clock() - self.begin_s)

    def tuning_s(self, graphs: Sequence[Graph]) -> float | None:
        """Seconds that tuning may take, so that the export of these graphs is in time."""
        left = self.left_s
        if left is None:
            return None
        export_s = sum(self.export_s(graph) for graph in graphs)
        races_s = sum(race_s(graph) for graph in graphs)
        if is_affordable(races_s, self.seconds):
            export_s += races_s
        return max(left - export_s, _LEAST_S)

    def export_s(self, graph: Graph) -> float:
        """Seconds that the export of a model is expected to take."""
        kernels = len(graph.expressions)
        return _EXPORT_S + kernels * _KERNEL_S + graph.nbytes * _BYTE_S + self.evaluation_s

    def can_race(self, graphs: Sequence[Graph]) -> bool:
        """Whether kernels of the first of these graphs can race before all are exported."""
        left = self.left_s
        if left is None:
            return True
        return left >= race_s(graphs[0]) + sum(self.export_s(graph) for graph in graphs)
