"""Calls of a region's library: tensors in, new tensors out, or the memory of those that the
results replace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._C._dynamo import guards

from tuner.errors import TunerError
from tuner.models.library.region_cache import SYMBOL
from tuner.runtime.loader import Library, LibraryError
from tuner.torch.exchange import bound
from tuner.torch.frozen_graph import RegionGraph
from tuner.torch.layouts import Layouts, copied
from tuner.torch.rebuilding import Function

# New tensors are made as the code of inductor makes them, in a third of the time of
# `torch.empty_strided`.
_EMPTY = guards._empty_strided_cpu
_ALIGNMENT = 64  # bytes
# Status of a call that wrote nothing: an input begins or lies otherwise, or shares memory with
# what would be overwritten.
_COPIED = (2, 3, 11)
_UNTOUCHED = (1, *_COPIED, 5, 9, 10)  # of all that are found before a kernel runs
_VALUE = 9  # an index is out of its range


class InputRefused(TunerError):
    """A library does not take the values of a call, of which PyTorch may have an error to say.
    Nothing was written."""


def native(
    path: Path,
    graph: RegionGraph,
    layouts: Layouts,
    failed: Callable[[str], Function],
) -> Function:
    """The function of a region's library.

    A result that replaces an input is that very tensor, with the result in it, unless its
    memory is not fit for that. `failed` is called with a message where a call fails, and gives
    the function that computes the region instead. Raises LibraryError for a library of another
    region; its function raises that where a call fails that may have replaced an input, and
    InputRefused for indices out of their ranges.
    """
    library = Library(path)
    signature = library.signature(SYMBOL)
    stated = tuple((argument.dtype, argument.shape) for argument in signature.arguments)
    if stated != graph.arguments:
        raise LibraryError(f"{path} has the function of another region")
    entry = bound(path, SYMBOL, [layout.strides for layout in layouts.inputs])
    made = [(layout.shape, layout.strides, layout.dtype) for layout in layouts.outputs]
    replaced = dict(layouts.replaced)
    plan = [(replaced.get(number), layout) for number, layout in enumerate(made)]

    def new(*tensors: torch.Tensor) -> Any:
        results = tuple([_EMPTY(shape, strides, dtype) for shape, strides, dtype in made])
        status = entry(*tensors, *results)
        if status in _COPIED:
            status = entry(*copied(tensors, layouts.inputs, _ALIGNMENT), *results)
        if status == 0:
            return results
        if status == _VALUE:
            raise InputRefused("an index is out of its range")
        return failed(f"its library failed with status {status}")(*tensors)

    def over_inputs(*tensors: torch.Tensor) -> Any:
        results = tuple(
            [_EMPTY(*layout) if place is None else tensors[place] for place, layout in plan]
        )
        status = entry(*tensors, *results)
        if status == 0:
            return results
        if status in _UNTOUCHED:
            return new(*tensors)
        raise LibraryError(
            f"the library of a region failed with status {status} and may have replaced some of "
            f"its inputs, such as parameters; go on from a checkpoint",
            status,
        )

    return over_inputs if replaced else new
