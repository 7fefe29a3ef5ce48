"""Extents of `torch.export` that are computed at run time: symbols such as `u0` and formulas of
them, each with the scalar that counts what is there and a bound that is known at import."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tuner.models.errors import ModelRefused
from tuner.models.operators.extents import counted, whole
from tuner.models.operators.values import Value


class Extents:
    """The symbols and formulas of a program that have come up so far."""

    def __init__(self) -> None:
        self._bounds: dict[str, int] = {}
        self._counts: dict[str, Value] = {}  # of those that are not known at import

    def bound(self, extent: Any, name: str) -> int:
        """The greatest number that an extent may be. Raises ModelRefused for one that is
        neither known nor the extent of a selection."""
        number = self.number(extent)
        if number is None:
            raise ModelRefused(
                f"{name!r} has a dynamic extent {extent}; export the program with fixed shapes. "
                f"Extents that depend on values are taken where nonzero, masks, slices, cat and "
                f"view give them; ONNX files of torch.onnx.export may have more"
            )
        return number

    def number(self, extent: Any) -> int | None:
        """The greatest number that an extent may be, if it is known."""
        symbol = _symbol(extent)
        return int(symbol) if symbol.isdecimal() else self._bounds.get(symbol)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """For what comes up inside of a branch, which nothing outside may read."""
        bounds, counts = dict(self._bounds), dict(self._counts)
        try:
            yield
        finally:
            self._bounds, self._counts = bounds, counts

    def know(self, tensors: Sequence[Any]) -> bool:
        """Whether all extents of traced tensors have come up."""
        extents = [extent for tensor in tensors for extent in tensor.shape]
        return all(self.number(extent) is not None for extent in extents)

    def counts(self, shape: Sequence[Any]) -> dict[int, Value]:
        """The scalars of the dimensions whose extents are computed at run time."""
        symbols = {axis: _symbol(extent) for axis, extent in enumerate(shape)}
        return {
            axis: self._counts[symbol] for axis, symbol in symbols.items() if symbol in self._counts
        }

    def noted(self, shape: Sequence[Any], value: Value) -> Value:
        """The value with the counts of its traced shape. Symbols that come up in it stand for
        the value's own extents."""
        for axis, extent in enumerate(shape):
            symbol = _symbol(extent)
            if not symbol.isdecimal() and symbol not in self._bounds:
                self._bounds[symbol] = value.shape[axis]
                if axis in value.counts:
                    self._counts[symbol] = value.counts[axis]
        return counted(whole(value), self.counts(shape))


def is_late(value: Any) -> bool:
    """Whether a traced value is a symbolic number, or a tensor with a symbolic extent."""
    if isinstance(value, list | tuple):
        return any(is_late(part) for part in value)
    if hasattr(value, "shape"):
        return any(not isinstance(extent, int) for extent in value.shape)
    return is_symbolic(value)


def is_symbolic(value: Any) -> bool:
    """Whether a traced value is a number that is computed from extents."""
    return type(value).__name__ in ("SymInt", "SymBool", "SymFloat")


def _symbol(extent: Any) -> str:
    """How a traced extent is written: a symbol, a number, or a formula of them."""
    return str(extent if isinstance(extent, int) else extent.node.expr)
