"""Calls of a region's library: pointers of tensors in, new tensors out."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._C._dynamo import guards

from tuner.models.graph import Graph
from tuner.models.region_cache import SYMBOL
from tuner.runtime.loader import Library, LibraryError
from tuner.torch.layouts import Layouts, copied
from tuner.torch.rebuilding import Function

# What a call does for each tensor, without a look-up of its name. New tensors are made as the
# code of inductor makes them, in a third of the time of `torch.empty_strided`.
_STRIDE, _POINTER = torch.Tensor.stride, torch.Tensor.data_ptr
_EMPTY = guards._empty_strided_cpu
_ALIGNMENT = 64  # bytes
_MISALIGNED = 2  # status of a call with a tensor that begins at no multiple of these


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
    entry = ctypes.CDLL(str(path))[SYMBOL]
    entry.argtypes = [ctypes.c_void_p] * len(expected)
    strides = [layout.strides for layout in layouts.inputs]
    made = [(layout.shape, layout.strides, layout.dtype) for layout in layouts.outputs]

    def function(*tensors: torch.Tensor) -> Any:
        if list(map(_STRIDE, tensors)) != strides:
            return function(*copied(tensors, layouts.inputs, _ALIGNMENT))
        results = tuple([_EMPTY(shape, steps, dtype) for shape, steps, dtype in made])
        status = entry(*map(_POINTER, tensors), *map(_POINTER, results))
        if status == 0:
            return results
        if status == _MISALIGNED and any(tensor.data_ptr() % _ALIGNMENT for tensor in tensors):
            return function(*copied(tensors, layouts.inputs, _ALIGNMENT))
        return failed(f"its library failed with status {status}")(*tensors)

    return function
