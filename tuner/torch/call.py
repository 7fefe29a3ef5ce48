"""A region as a function of tensors: PyTorch's until its library has shown that it computes
the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch

from tuner.models.accuracy import TOLERANCE, relative_error
from tuner.runtime.loader import LibraryError
from tuner.torch.notices import Notices
from tuner.torch.rebuilding import Function

Load = Callable[[Path, Callable[[str], Function]], Function]
"""Makes a library's function, given what to do when a call of it fails."""


class Supply(Protocol):
    """Where a region's library comes from."""

    def begin(self, call: RegionCall) -> None:
        """Offers the library to the call, at once or in a while."""

    def discard(self) -> None:
        """Forgets a library that computes something else."""

    def load(self, path: Path, failed: Callable[[str], Function]) -> Function:
        """The library's function. Raises LibraryError."""

    @property
    def tolerance(self) -> float:
        """The error that outputs may have, relative to their greatest value."""


class RegionCall:
    """Calls a region. It has a name, as functions of traced graphs must.

    Several threads may call. What computes the region changes between calls.
    """

    def __init__(self, name: str, eager: Function, supply: Supply, notices: Notices) -> None:
        self.__name__ = name
        self._eager, self._supply, self._notices = eager, supply, notices
        self._lock = threading.Lock()
        self._function: Function = self._first

    def __call__(self, *tensors: Any) -> Any:
        """The region's outputs, a tuple."""
        return self._function(*tensors)

    def offer(self, path: Path) -> None:
        """Has the library at a path tried at the next call."""
        self._function = partial(self._try, path)

    def give_up(self, kind: str, message: str) -> None:
        """Leaves the region to PyTorch, with a warning at the next call."""
        self._function = partial(self._warn, kind, message)

    def _first(self, *tensors: Any) -> Any:
        with self._lock:
            if self._function == self._first:
                self._function = self._eager
                self._supply.begin(self)
        return self._function(*tensors)

    def _warn(self, kind: str, message: str, *tensors: Any) -> Any:
        self._function = self._eager
        self._notices.warn(kind, f"region {self.__name__}: {message}")
        return self._eager(*tensors)

    def _try(self, path: Path, *tensors: Any) -> Any:
        """Computes the region by both, and keeps the library if it gives the same."""
        right = self._eager(*tensors)
        with self._lock:
            if getattr(self._function, "func", None) != self._try:  # another thread was first
                return right
            self._function = self._eager
            try:
                function = self._supply.load(path, self._failed)
                error = _greatest_error(function(*tensors), right)
            except LibraryError as trouble:
                self._supply.discard()
                self._notices.warn("library", f"region {self.__name__}: {trouble}")
                return right
            if not error <= self._supply.tolerance:
                self._supply.discard()
                self._notices.warn(
                    "wrong",
                    f"region {self.__name__}: its library is off by {error:.3g} of the greatest "
                    f"value, {self._supply.tolerance:.2g} is allowed",
                )
            elif self._function == self._eager:
                self._function = function
        return right

    def _failed(self, message: str) -> Function:
        self._function = self._eager
        self._notices.warn("call", f"region {self.__name__}: {message}")
        return self._eager


def _greatest_error(got: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> float:
    return max(_error(a, b) for a, b in zip(got, right, strict=True))


def _error(got: torch.Tensor, right: torch.Tensor) -> float:
    """The error of an output, relative to its greatest value.

    Rounding may turn the few comparisons whose sides are nearly equal, so that a small
    share of bools and integers may differ.
    """
    if not right.is_floating_point():
        share = float((got != right).double().mean())
        return 0.0 if share <= TOLERANCE else float("inf")
    return relative_error(got.double().numpy(), right.double().numpy())
