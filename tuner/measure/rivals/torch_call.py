"""A call of PyTorch that computes what a workload does, and what makes such calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Params = Mapping[str, Any]
# Name, function giving a tensor, that tensor in the workload's layout.
Call = tuple[str, Callable[[], Any], Callable[[Any], Any]]
Family = Callable[[Any, str, Params, tuple[Any, ...], tuple[int, ...]], list[Call]]


def same(tensor: Any) -> Any:
    """A tensor that is in the workload's layout already."""
    return tensor
