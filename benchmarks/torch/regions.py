"""How the tables compile a model, and which share of its operators' time lies in regions.

Regions are computed by the reference evaluator in float64, which says what operators mean, or
by libraries, with the default schedule of each kernel, which says what the compiler makes of
them. The time is PyTorch's own of each operator, by its profiler, in one call of the compiled
model with regions that PyTorch computes too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from tests.support.torch_libraries import by_library
from tests.support.torch_regions import compile_traced, evaluated
from tuner.torch.compiling import RegionFunction
from tuner.torch.explanation import computes, kept_race
from tuner.torch.graph_compiler import GraphCompiler
from tuner.torch.options import options_from
from tuner.torch.partition import Partition, Region
from tuner.torch.rebuilding import Function, OfPyTorch

COMPUTED_BY: Mapping[str, RegionFunction] = {"evaluator": evaluated, "libraries": by_library}
_REGION = "tuner::region"


class Compiled:
    """A compiled model. `by` says what computes its regions."""

    def __init__(self, model: Callable[..., Any], by: str) -> None:
        self._of, self._timed = COMPUTED_BY[by], False
        self.function, self.backend = compile_traced(model, self._region)

    def _region(self, region: Region, eager: OfPyTorch) -> Function:
        ours = self._of(region, eager)

        def function(*tensors: Any) -> Any:
            if not self._timed:
                return ours(*tensors)
            with record_function(_REGION):
                return eager(*tensors)

        return function

    def share_of_time(self, call: Callable[[], object]) -> float:
        """The share of operators' time in regions, of a call of the compiled model."""
        self._timed = True
        try:
            call()  # with cold caches
            with profile(activities=[ProfilerActivity.CPU]) as run:
                call()
        finally:
            self._timed = False
        inside_us = everywhere_us = 0.0
        for event in run.events():
            if event.name.startswith(("aten::", "mkldnn::")):
                everywhere_us += event.self_cpu_time_total
                inside_us += event.self_cpu_time_total if _is_inside(event) else 0.0
        return inside_us / everywhere_us if everywhere_us else 1.0


def _is_inside(event: Any) -> bool:
    while event is not None and event.name != _REGION:
        event = event.cpu_parent
    return event is not None


class Tuned:
    """The backend `tuner` with options; `parts` are the partitions that it made."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.parts: list[Partition] = []
        self._options = options
        self._compiler = GraphCompiler(lambda traced, cut: self.parts.append(cut))

    def __call__(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Function:
        return self._compiler.function(module, inputs, None, self._options)

    @property
    def libraries(self) -> int:
        """Regions whose library is faster than PyTorch."""
        options = options_from(None, self._options)
        races = [kept_race(region, options) for cut in self.parts for region in cut.regions]
        return sum(race is not None and race.is_faster for race in races)


def counted(parts: Sequence[Partition]) -> dict[str, int]:
    """Calls of operators, those in regions, and regions."""
    regions = [region for cut in parts for region in cut.regions]
    ours = sum(computes(node) for region in regions for node in region.part.nodes)
    return {
        "calls": ours + sum(len(cut.left) for cut in parts),
        "in_regions": ours,
        "regions": len(regions),
    }
