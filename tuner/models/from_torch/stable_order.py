"""PyTorch's sorts with equal elements in the order of their positions, as graphs have them.

PyTorch leaves that order open, except in stable sorts: its vectorised sorts and its selections
move equal elements. What depends on their positions can only be held against it in one order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_aten = torch.ops.aten


class StableOrder(TorchFunctionMode):  # type: ignore[misc]  # PyTorch is not followed
    """Within it, ATen's sorts and selections take equal elements in the order of positions."""

    def __torch_function__(
        self,
        function: Any,
        types: Any,
        arguments: tuple[Any, ...] = (),
        keywords: Mapping[str, Any] | None = None,
    ) -> Any:
        return _RULES.get(function, function)(*arguments, **(keywords or {}))


def _sort(x: Any, dim: int = -1, descending: bool = False) -> Any:
    return _aten.sort.stable(x, stable=True, dim=dim, descending=descending)


def _stable_sort(x: Any, *, stable: bool | None, dim: int = -1, descending: bool = False) -> Any:
    return _sort(x, dim, descending)


def _order(x: Any, dim: int = -1, descending: bool = False) -> Any:
    return _sort(x, dim, descending)[1]


def _stable_order(x: Any, *, stable: bool, dim: int = -1, descending: bool = False) -> Any:
    return _order(x, dim, descending)


def _top_k(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if x.dim() == 0:
        return _aten.topk(x, k, dim, largest, sorted)
    return tuple(part.narrow(dim, 0, k) for part in _sort(x, dim, largest))


def _kth_value(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    if x.dim() == 0:
        return _aten.kthvalue(x, k, dim, keepdim)
    parts = (part.narrow(dim, k - 1, 1) for part in _sort(x, dim))
    return tuple(part if keepdim else part.squeeze(dim) for part in parts)


def _median(x: Any, dim: int, keepdim: bool = False) -> Any:
    """The lower one of the middle, or the first NaN."""
    if x.dim() == 0:
        return _aten.median.dim(x, dim, keepdim)
    _, middle = _kth_value(x, (x.shape[dim] + 1) // 2, dim, keepdim=True)
    is_nan = x.isnan()
    first = is_nan.byte().argmax(dim, keepdim=True)
    places = torch.where(is_nan.any(dim, keepdim=True), first, middle)
    parts = (x.gather(dim, places), places)
    return tuple(part if keepdim else part.squeeze(dim) for part in parts)


_RULES: Mapping[Any, Callable[..., Any]] = {
    _aten.sort.default: _sort,
    _aten.sort.stable: _stable_sort,
    _aten.argsort.default: _order,
    _aten.argsort.stable: _stable_order,
    _aten.topk.default: _top_k,
    _aten.kthvalue.default: _kth_value,
    _aten.median.dim: _median,
}
