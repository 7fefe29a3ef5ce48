"""A region as a function of tensors."""

from __future__ import annotations

from typing import Any

from tuner.torch.rebuilding import Function


class RegionCall:
    """Calls a region. It has a name, as functions of traced graphs must."""

    def __init__(self, name: str, eager: Function) -> None:
        self.__name__ = name
        self._call = eager

    def __call__(self, *tensors: Any) -> Any:
        """The region's outputs, a tuple."""
        return self._call(*tensors)
