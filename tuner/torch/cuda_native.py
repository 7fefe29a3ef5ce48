"""Calls of a region's library on a GPU: addresses of tensors in, new tensors out, in the order
of PyTorch's current stream."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tuner.models.library.region_cache import SYMBOL
from tuner.runtime.cuda_loader import ALIGNMENT, CudaLibrary, CudaLibraryError
from tuner.runtime.loader import LibraryError
from tuner.torch.frozen_graph import RegionGraph
from tuner.torch.layouts import Layouts, copied
from tuner.torch.rebuilding import Function


def cuda_native(
    path: Path,
    graph: RegionGraph,
    layouts: Layouts,
    failed: Callable[[str], Function],
) -> Function:
    """The function of a region's library, as `tuner.torch.native.native` has it."""
    try:
        library = CudaLibrary(path)
        entry = library.model(SYMBOL)
    except (CudaLibraryError, KeyError) as error:
        raise LibraryError(f"{path} has no function of a region: {error}") from error
    stated = tuple((argument["dtype"], tuple(argument["shape"])) for argument in entry.arguments)
    if stated != graph.arguments:
        raise LibraryError(f"{path} has the function of another region")

    def function(*tensors: torch.Tensor) -> Any:
        given = copied(tensors, layouts.inputs, ALIGNMENT)
        results = tuple(
            torch.empty_strided(
                layout.shape, layout.strides, dtype=layout.dtype, device=layout.device
            )
            for layout in layouts.outputs
        )
        stream = torch.cuda.current_stream().cuda_stream
        try:
            entry.launch([tensor.data_ptr() for tensor in (*given, *results)], stream)
        except CudaLibraryError as error:
            return failed(f"its library failed: {error}")(*tensors)
        return results

    return function
