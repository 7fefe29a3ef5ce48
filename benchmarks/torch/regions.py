"""How the tables compile a model, and which share of its operators' time lies in regions.

Regions are computed by the reference evaluator in float64, which says what operators mean, or
by libraries, with the default schedule of each kernel, which says what the compiler makes of
them. The time is PyTorch's own of each operator, by its profiler, in one call of the compiled
model with regions that PyTorch computes too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch.profiler import ProfilerActivity, profile, record_function

from tests.support.torch_libraries import by_library
from tests.support.torch_regions import Traced, compile_traced, evaluated
from tuner.torch.compiling import RegionFunction
from tuner.torch.explanation import computes
from tuner.torch.partition import Region
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


def counted(backend: Traced) -> dict[str, int]:
    """Calls of operators, those in regions, and regions."""
    ours = sum(computes(node) for region in backend.regions for node in region.part.nodes)
    return {
        "calls": ours + len(backend.left),
        "in_regions": ours,
        "regions": len(backend.regions),
    }
