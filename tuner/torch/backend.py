"""The backend `tuner` of `torch.compile`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import torch

from tuner.torch.call import RegionCall
from tuner.torch.compiling import compiled
from tuner.torch.partition import Region
from tuner.torch.rebuilding import Function

_NUMBERS = count(1)


def tuner(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Function:
    """Compiles a graph of Dynamo's: regions of it are ours, PyTorch computes the rest."""
    return compiled(module, inputs, _function)


def _function(region: Region, eager: Function) -> Function:
    return RegionCall(f"region_{next(_NUMBERS)}", eager)
