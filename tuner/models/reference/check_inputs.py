"""Inputs on which a model is checked: the given ones, and random ones for the rest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tuner.models.files.input_values import InputValues
from tuner.models.graph import Array, Graph
from tuner.models.operators.formats import FORMATS, INTEGER_LIMITS
from tuner.workload.arrays import numpy_dtype
from tuner.workload.expression import Tensor
from tuner.workload.facts import drawn
from tuner.workload.inputs import index_ranges


def check_inputs(graph: Graph, values: InputValues, seed: int = 0) -> list[Array]:
    """One array for each input of the graph, in its order.

    Inputs without a given value are standard normal. Indices lie within the tensors that
    they index; other integers are 0 or 1, which may be conditions. Numbers of a small
    format are in the bytes that hold them.
    """
    rng, extents = np.random.default_rng(seed), _index_extents(graph)
    inputs = []
    for tensor, label in zip(graph.inputs, graph.labels, strict=False):
        dtype = numpy_dtype(tensor.dtype)
        if label in values:
            inputs.append(values[label].view(dtype).reshape(tensor.shape))
        elif tensor.name in graph.fixed:
            inputs.append(graph.fixed[tensor.name])
        elif tensor.name in graph.ranges:
            inputs.append(drawn(rng, replace(tensor, fact=graph.ranges[tensor.name])))
        elif label in graph.formats:
            inputs.append(_random_of_format(tensor, graph.formats[label], rng))
        else:
            inputs.append(_random(tensor, extents.get(tensor.name, 2), rng))
    return inputs


def _random(tensor: Tensor, extent: int, rng: np.random.Generator) -> Array:
    dtype = numpy_dtype(tensor.dtype)
    if "float" in tensor.dtype:
        return rng.standard_normal(tensor.shape).astype(dtype)
    greatest = 1 if tensor.dtype == "bool" else int(np.iinfo(dtype).max)
    return rng.integers(0, min(extent - 1, greatest), tensor.shape, endpoint=True).astype(dtype)


def _random_of_format(tensor: Tensor, name: str, rng: np.random.Generator) -> Array:
    """Standard normal numbers of a float format, any of an integer format, in bytes."""
    if name in INTEGER_LIMITS:
        low, high = INTEGER_LIMITS[name]
        return rng.integers(low, high, tensor.shape, numpy_dtype(tensor.dtype), endpoint=True)
    numbers = np.abs(rng.standard_normal(tensor.shape)).astype(np.float32)
    dtype = FORMATS[name].typed(np.empty(0, numpy_dtype(tensor.dtype))).dtype
    return FORMATS[name].stored(numbers.astype(dtype))


def _index_extents(graph: Graph) -> dict[str, int]:
    """Inputs that index tensors, with the smallest extent that each indexes."""
    extents: dict[str, int] = {}
    for node in graph.expressions:
        for name, extent in index_ranges(node).items():
            root = graph.root(name)
            extents[root] = min(extents.get(root, extent), extent)
    return extents
