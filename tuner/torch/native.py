"""Calls of a region's library: tensors in, new tensors out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._C._dynamo import guards

from tuner.models.graph import Graph
from tuner.models.region_cache import SYMBOL
from tuner.runtime.loader import Library, LibraryError
from tuner.torch.exchange import bound
from tuner.torch.layouts import Layouts, copied
from tuner.torch.rebuilding import Function

# New tensors are made as the code of inductor makes them, in a third of the time of
# `torch.empty_strided`.
_EMPTY = guards._empty_strided_cpu
_ALIGNMENT = 64  # bytes
_COPIED = (2, 11)  # status of a call with an input that begins or lies otherwise


def native(
    path: Path, graph: Graph, layouts: Layouts, failed: Callable[[str], Function]
) -> Function:
    """The function of a region's library.

    `failed` is called with a message where a call fails, and gives the function that
    computes the region instead. Raises LibraryError for a library of another region.
    """
    library = Library(path)
    signature = library.signature(SYMBOL)
    expected = [
        (tensor.dtype, tensor.shape)
        for tensor in (*graph.inputs, *(graph.tensor(name) for name in graph.outputs))
    ]
    if [(argument.dtype, argument.shape) for argument in signature.arguments] != expected:
        raise LibraryError(f"{path} has the function of another region")
    entry = bound(path, SYMBOL, [layout.strides for layout in layouts.inputs])
    made = [(layout.shape, layout.strides, layout.dtype) for layout in layouts.outputs]

    def function(*tensors: torch.Tensor) -> Any:
        results = tuple([_EMPTY(shape, strides, dtype) for shape, strides, dtype in made])
        status = entry(*tensors, *results)
        if status in _COPIED:
            status = entry(*copied(tensors, layouts.inputs, _ALIGNMENT), *results)
        if status == 0:
            return results
        return failed(f"its library failed with status {status}")(*tensors)

    return function
