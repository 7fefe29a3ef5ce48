"""The seconds of a whole command on a model: reading, check, tuning, export, all inside."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tuner.models.graph import Graph
from tuner.models.tuning.chain_race import affordable_chains, chain_race_s
from tuner.models.tuning.kernel_race import is_affordable, race_s
from tuner.target.target import Target
from tuner.workers.jobs.model_library import Model

# Seconds of an export: the model's executor compiled and linked twice, two processes that
# run it, its profile of at most two seconds, and the files.
_EXPORT_S = 9.0
_KERNEL_S = 0.06  # of each kernel's object, packed and renamed, in both libraries
# Of each byte of constants, which is stored, packed, written, linked, loaded and hashed several
# times: 33 s of a processor (Zen 3) for 410 MB, and more where others keep it busy.
_BYTE_S = 1 / 12.5e6
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

    def with_chains(self, models: Sequence[Model], target: Target) -> list[Model]:
        """The models with the chains that there is time to compare inside all of them."""
        races_s = sum(race_s(model.graph) + chain_race_s(model.graph) for model in models)
        if not is_affordable(races_s, self.seconds):
            return [*models]
        return [
            replace(model, chains=affordable_chains(model.graph, target, self.seconds))
            for model in models
        ]

    def tuning_s(self, models: Sequence[Model]) -> float | None:
        """Seconds that tuning may take, so that the export of these models is in time."""
        left = self.left_s
        if left is None:
            return None
        races_s = sum(map(_races_s, models))
        if not is_affordable(races_s, self.seconds):
            races_s = 0.0
        return max(left - self._exports_s(models) - races_s, _LEAST_S)

    def spare_s(self, models: Sequence[Model], tuning_s: float | None) -> float:
        """Seconds between a tuning of so many and an export that is in time: those of races
        inside these models, which nobody runs where tuning is late. Negative where the export
        is late in any case."""
        left = self.left_s
        if left is None or tuning_s is None:
            return 0.0
        return left - self._exports_s(models) - tuning_s

    def _exports_s(self, models: Sequence[Model]) -> float:
        return sum(self.export_s(model.graph) for model in models)

    def export_s(self, graph: Graph) -> float:
        """Seconds that the export of a model is expected to take."""
        kernels = len(graph.expressions)
        return _EXPORT_S + kernels * _KERNEL_S + graph.nbytes * _BYTE_S + self.evaluation_s

    def can_race(self, models: Sequence[Model]) -> bool:
        """Whether kernels of the first of these models can race before all are exported."""
        left = self.left_s
        if left is None:
            return True
        return left >= _races_s(models[0]) + self._exports_s(models)


def _races_s(model: Model) -> float:
    """Seconds of the races inside a model."""
    chains_s = chain_race_s(model.graph) if model.chains else 0.0
    return race_s(model.graph) + chains_s
