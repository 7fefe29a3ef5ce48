"""How the tensors lie in memory that a region's function takes and makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tuner.models.from_torch.region import lies_without_gaps
from tuner.torch.partition import Region


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a tensor lies in memory."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements, without gaps
    dtype: torch.dtype
    on_gpu: bool = False

    @property
    def device(self) -> str:
        """PyTorch's name of where it lies."""
        return "cuda" if self.on_gpu else "cpu"


@dataclass(frozen=True, kw_only=True)
class Layouts:
    """How the tensors lie that a region's function takes and makes."""

    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    replaced: tuple[tuple[int, int], ...] = ()  # outputs that may lie over inputs, their numbers

    @property
    def is_on_gpu(self) -> bool:
        """Whether they are, all together."""
        return any(layout.on_gpu for layout in self.outputs)


def layouts_of(region: Region) -> Layouts:
    return Layouts(
        inputs=tuple(_layout(node.meta["val"]) for node in region.part.inputs),
        outputs=tuple(_layout(node.meta["val"]) for node in region.part.outputs),
        replaced=region.replaced,
    )


def _layout(traced: Any) -> Layout:
    shape = tuple(traced.shape)
    strides = tuple(traced.stride())
    if not lies_without_gaps(traced):
        strides = tuple(torch.empty(shape, device="meta").stride())
    return Layout(shape=shape, strides=strides, dtype=traced.dtype, on_gpu=traced.is_cuda)


def copied(
    tensors: Sequence[torch.Tensor], layouts: Sequence[Layout], alignment: int
) -> list[torch.Tensor]:
    """The tensors, each laid out and aligned as the library takes it, in bytes."""
    copies = []
    for tensor, layout in zip(tensors, layouts, strict=True):
        if tensor.stride() == layout.strides and tensor.data_ptr() % alignment == 0:
            copies.append(tensor)
            continue
        copy = torch.empty_strided(
            layout.shape, layout.strides, dtype=layout.dtype, device=layout.device
        )
        copies.append(copy.copy_(tensor))
    return copies
