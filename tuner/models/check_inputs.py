"""Inputs on which a model is checked: the given ones, and random ones for the rest."""

from __future__ import annotations

import numpy as np

from tuner.models.graph import Array, Graph
from tuner.models.input_values import InputValues
from tuner.workload.arrays import numpy_dtype
from tuner.workload.expression import Tensor
from tuner.workload.inputs import index_ranges


def check_inputs(graph: Graph, values: InputValues, seed: int = 0) -> list[Array]:
    """One array for each input of the graph, in its order.

    Inputs without a given value are standard normal. Indices lie within the tensors that
    they index; other integers are 0 or 1, which may be conditions.
    """
    rng, extents = np.random.default_rng(seed), _index_extents(graph)
    inputs = []
    for tensor, label in zip(graph.inputs, graph.labels, strict=False):
        dtype = numpy_dtype(tensor.dtype)
        if label in values:
            inputs.append(values[label].view(dtype).reshape(tensor.shape))
        elif tensor.name in graph.fixed:
            inputs.append(graph.fixed[tensor.name])
        else:
            inputs.append(_random(tensor, extents.get(tensor.name, 2), rng))
    return inputs


def _random(tensor: Tensor, extent: int, rng: np.random.Generator) -> Array:
    dtype = numpy_dtype(tensor.dtype)
    if "float" in tensor.dtype:
        return rng.standard_normal(tensor.shape).astype(dtype)
    greatest = 1 if tensor.dtype == "bool" else int(np.iinfo(dtype).max)
    return rng.integers(0, min(extent - 1, greatest), tensor.shape, endpoint=True).astype(dtype)


def _index_extents(graph: Graph) -> dict[str, int]:
    """Inputs that index tensors, with the smallest extent that each indexes."""
    extents: dict[str, int] = {}
    for node in graph.expressions:
        for name, extent in index_ranges(node).items():
            root = graph.root(name)
            extents[root] = min(extents.get(root, extent), extent)
    return extents
