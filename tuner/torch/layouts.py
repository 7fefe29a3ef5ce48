"""How the tensors lie in memory that a region's function takes and makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tuner.models.from_torch.region import lies_without_gaps
from tuner.models.from_torch.traced import Order
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
        inputs=tuple(_layout(node, region.part.orders) for node in region.part.inputs),
        outputs=tuple(_layout(node, region.part.orders) for node in region.part.outputs),
        replaced=region.replaced,
    )


def _layout(node: Any, orders: Mapping[Any, Order]) -> Layout:
    traced = node.meta["val"]
    shape = tuple(traced.shape)
    strides = tuple(traced.stride())
    if node in orders:
        strides = strides_of(shape, orders[node])
    elif not lies_without_gaps(traced):
        strides = tuple(torch.empty(shape, device="meta").stride())
    return Layout(shape=shape, strides=strides, dtype=traced.dtype, on_gpu=traced.is_cuda)


def strides_of(shape: Sequence[int], order: Order) -> tuple[int, ...]:
    """The strides, in elements, of a tensor without gaps whose dimensions lie in an order."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def lying_as(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The tensor with these strides: itself, or a copy."""
    if tensor.stride() == strides:
        return tensor
    copy = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor)


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
