"""Calls of a region's library: pointers of tensors in, new tensors out."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._C._dynamo import guards

from tuner.models.from_torch.region import memory_order
from tuner.models.graph import Graph
from tuner.models.region_cache import SYMBOL
from tuner.runtime.loader import Library, LibraryError
from tuner.torch.partition import Region
from tuner.torch.rebuilding import Function

# What a call does for each tensor, without a look-up of its name. New tensors are made as the
# code of inductor makes them, in a third of the time of `torch.empty_strided`.
_STRIDE, _POINTER = torch.Tensor.stride, torch.Tensor.data_ptr
_EMPTY = guards._empty_strided_cpu
_MISALIGNED = 2  # status of a call with a tensor that begins at no multiple of 64 bytes


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a tensor lies in memory."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements, without gaps
    dtype: torch.dtype


@dataclass(frozen=True, kw_only=True)
class Layouts:
    """How the tensors lie that a region's function takes and makes."""

    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]


def layouts_of(region: Region) -> Layouts:
    return Layouts(
        inputs=tuple(_layout(node.meta["val"]) for node in region.part.inputs),
        outputs=tuple(_layout(node.meta["val"]) for node in region.part.outputs),
    )


def _layout(traced: Any) -> Layout:
    shape = tuple(traced.shape)
    strides = tuple(traced.stride())
    if memory_order(traced) is None and not traced.is_contiguous():
        strides = tuple(torch.empty(shape, device="meta").stride())
    return Layout(shape=shape, strides=strides, dtype=traced.dtype)


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
            return function(*_copied(tensors, layouts.inputs))
        results = tuple([_EMPTY(shape, steps, dtype) for shape, steps, dtype in made])
        status = entry(*map(_POINTER, tensors), *map(_POINTER, results))
        if status == 0:
            return results
        if status == _MISALIGNED and any(tensor.data_ptr() % 64 for tensor in tensors):
            return function(*_copied(tensors, layouts.inputs))
        return failed(f"its library failed with status {status}")(*tensors)

    return function


def _copied(tensors: Sequence[torch.Tensor], layouts: Sequence[Layout]) -> list[torch.Tensor]:
    """The tensors, each laid out and aligned as the library takes it."""
    copies = []
    for tensor, layout in zip(tensors, layouts, strict=True):
        if tensor.stride() == layout.strides and tensor.data_ptr() % 64 == 0:
            copies.append(tensor)
            continue
        copy = torch.empty_strided(layout.shape, layout.strides, dtype=layout.dtype, device="cpu")
        copies.append(copy.copy_(tensor))
    return copies
