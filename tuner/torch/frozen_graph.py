"""Regions whose weights are constants.

A library packs constants when it is made, so that a kernel reads weights in the order in which it
needs them, and calls do not pass them. PyTorch calls that freezing. A library of a region that is
frozen belongs to the values of its weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import TypeAlias

import torch

from tuner.models.graph import Array
from tuner.models.graph_archive import packed, unpacked
from tuner.models.passes.constants import with_constant_inputs
from tuner.torch.layouts import Layouts, lying_as
from tuner.torch.making import TuningFailed
from tuner.torch.packed_graph import PackedGraph
from tuner.workload.arrays import numpy_dtype
from tuner.workload.dtypes import DType

Weights = Mapping[int, torch.Tensor]
"""Tensors by the numbers of the region's inputs."""


def weights_among(tensors: Sequence[torch.Tensor]) -> Weights:
    """Parameters and buffers of modules, as Dynamo marks them, whose changes PyTorch counts."""
    return {
        number: tensor
        for number, tensor in enumerate(tensors)
        if (
            isinstance(tensor, torch.nn.Parameter)
            or getattr(tensor, "_dynamo_static_input_type", None) is not None
        )
        and not tensor.is_inference()
    }


@dataclass(frozen=True, kw_only=True)
class FrozenGraph:
    """A region's graph in which weights are constants. It has what a `PackedGraph` has."""

    graph: PackedGraph
    layouts: Layouts  # of the graph
    weights: Weights

    @property
    def arguments(self) -> tuple[tuple[DType, tuple[int, ...]], ...]:
        return tuple(
            argument
            for number, argument in enumerate(self.graph.arguments)
            if number not in self.weights
        )

    @property
    def tolerance(self) -> float:
        return self.graph.tolerance

    @cached_property
    def digest(self) -> str:
        return self._digest()

    @property
    def content(self) -> bytes:
        """As large as the weights. Raises TuningFailed."""
        constants = {number: self._array(number).copy() for number in self.weights}
        content = packed(with_constant_inputs(unpacked(self.graph.content), constants))
        if self._digest() != self.digest:
            raise TuningFailed("its weights have changed since they were frozen")
        return content

    def _digest(self) -> str:
        digest = sha256(self.graph.digest.encode())
        for number in self.weights:
            digest.update(b"%d:" % number)
            digest.update(self._array(number).reshape(-1).view("uint8").data)
        return digest.hexdigest()

    def _array(self, number: int) -> Array:
        """A weight as the graph has it, by its dimensions as they lie in memory."""
        tensor = lying_as(self.weights[number].detach(), self.layouts.inputs[number].strides)
        dtype, shape = self.graph.arguments[number]
        flat = tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8).numpy()
        array: Array = flat.view(numpy_dtype(dtype)).reshape(shape)
        return array


RegionGraph: TypeAlias = PackedGraph | FrozenGraph


def frozen_layouts(layouts: Layouts, weights: Weights) -> Layouts:
    """Those of a region that takes its weights no more. No output replaces an input."""
    inputs = enumerate(layouts.inputs)
    left = tuple(layout for number, layout in inputs if number not in weights)
    return Layouts(inputs=left, outputs=layouts.outputs)
