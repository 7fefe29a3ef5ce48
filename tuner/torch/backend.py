"""The backend `tuner` of `torch.compile`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import torch

from tuner.torch.call import RegionCall
from tuner.torch.compiling import compiled
from tuner.torch.layouts import layouts_of
from tuner.torch.notices import Notices
from tuner.torch.options import options_from
from tuner.torch.partition import Region
from tuner.torch.rebuilding import Function, OfPyTorch
from tuner.torch.tuning import Background, RegionSupply


class Backend:
    """A backend, as PyTorch calls it for each graph."""

    __name__ = "tuner"

    def __init__(self) -> None:
        self._background, self._notices, self._numbers = Background(), Notices(), count(1)

    def __call__(
        self,
        module: torch.fx.GraphModule,
        inputs: Sequence[Any],
        *,
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Function:
        """The function of a graph of Dynamo's: regions of it are ours, PyTorch computes the
        rest. Raises UsageError for options that it does not have."""
        chosen = options_from(mode, options)

        def function(region: Region, eager: OfPyTorch) -> Function:
            supply = RegionSupply(region.graph, layouts_of(region), chosen, self._background)
            name = f"region_{next(self._numbers)}"
            return RegionCall(
                name,
                eager,
                supply,
                self._notices,
                replaced=region.replaced,
                rival=eager.uncompiled,
            )

        return compiled(module, inputs, function, notices=self._notices)


tuner = Backend()
