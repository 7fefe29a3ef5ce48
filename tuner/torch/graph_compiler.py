"""What the backend makes of the graphs of a process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import torch

from tuner.torch.call import RegionCall
from tuner.torch.compiling import Observer, compiled
from tuner.torch.decompositions import is_training
from tuner.torch.frozen_call import FrozenCall, given_weights
from tuner.torch.frozen_graph import FrozenGraph, Weights, frozen_layouts
from tuner.torch.kept_trace import TraceStore
from tuner.torch.layouts import Layouts, layouts_of
from tuner.torch.notices import Notices
from tuner.torch.options import options_from
from tuner.torch.packed_graph import PackedGraph
from tuner.torch.partition import Region
from tuner.torch.rebuilding import Function, OfPyTorch
from tuner.torch.tuning import Background, RegionSupply, cache_of


class GraphCompiler:
    """Compiles graphs of Dynamo's. All share one thread that tunes, and their warnings."""

    def __init__(self, observer: Observer = lambda module, cut: None) -> None:
        self._background, self._notices, self._numbers = Background(), Notices(), count(1)
        self._observer = observer

    def function(
        self,
        module: torch.fx.GraphModule,
        inputs: Sequence[Any],
        mode: str | None,
        options: Mapping[str, Any] | None,
    ) -> Function:
        """The function of a graph: regions of it are ours, PyTorch computes the rest. Raises
        UsageError for options that the backend does not have."""
        chosen = options_from(mode, options)
        freezes = chosen.freeze and not is_training(inputs)

        def region_of(graph: PackedGraph, layouts: Layouts, eager: OfPyTorch) -> Function:
            name = f"region_{next(self._numbers)}"
            plain = RegionCall(
                name,
                eager,
                RegionSupply(graph, layouts, chosen, self._background),
                self._notices,
                replaced=layouts.replaced,
                rival=eager.uncompiled,
            )
            if not freezes or layouts.replaced or layouts.is_on_gpu:
                return plain

            def frozen_by(weights: Weights) -> RegionCall:
                inputs_count, rival = len(layouts.inputs), eager.uncompiled
                return RegionCall(
                    name,
                    given_weights(eager, inputs_count, weights),
                    RegionSupply(
                        FrozenGraph(graph=graph, layouts=layouts, weights=weights),
                        frozen_layouts(layouts, weights),
                        chosen,
                        self._background,
                    ),
                    self._notices,
                    rival=rival and given_weights(rival, inputs_count, weights),
                )

            return FrozenCall(plain, frozen_by)

        def function(region: Region, eager: OfPyTorch) -> Function:
            return region_of(region.packed, layouts_of(region), eager)

        traces = TraceStore(folder=cache_of(chosen).folder / "traces", region_of=region_of)
        return compiled(
            module, inputs, function, self._observer, notices=self._notices, traces=traces
        )
