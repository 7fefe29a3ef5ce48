"""What the functions of a library take, as the library itself describes it.

This file is copied into every exported Python package, beside the loader, so it must stay
self-contained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

# NumPy has no bfloat16: its values travel as their 16 bits.
_SAME = (
    "float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32",
    "uint16", "uint8", "bool",
)  # fmt: skip
NUMPY: Mapping[str, str] = MappingProxyType(
    {**{name: name for name in _SAME}, "bfloat16": "uint16"}
)


class ShapeError(ValueError):
    """An array of another shape, layout or number than the function takes."""


@dataclass(frozen=True)
class Argument:
    """A tensor that a function takes."""

    name: str
    dtype: str  # as declared, e.g. bfloat16
    shape: tuple[int, ...]
    role: str  # "in" or "out"
    # Of an output of which only the first elements are there along some dimensions: these,
    # and the output with their numbers.
    axes: tuple[int, ...] = ()
    extents: str = ""

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        return np.dtype(NUMPY[self.dtype])


@dataclass(frozen=True)
class Prepack:
    """How constants reach a kernel that takes them packed.

    Places count the inputs, then the packed buffers.
    """

    symbol: str  # the C function that packs
    constants: tuple[int, ...]  # places of what it takes
    packed: tuple[Argument, ...]  # what it writes
    passed: tuple[int, ...]  # places of what the kernel takes as inputs


@dataclass(frozen=True)
class Rows:
    """The first dimension of some arguments, which may have any extent in a range."""

    name: str
    low: int
    high: int
    ranged: frozenset[int]  # places of these arguments
    # Where only some extents are taken: the shapes of all arguments for each, and the place
    # and dimension of an input that tells which.
    shapes: Mapping[int, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    shown: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Signature:
    """What a function takes, and what it needs."""

    symbol: str
    arguments: tuple[Argument, ...]  # inputs, then outputs
    isa: tuple[str, ...]
    threads: int  # the kernel was tuned for
    prepack: Prepack | None = None  # None: the C function takes the arguments as they are
    # Where rows have a range. `arguments` are those of the greatest extent.
    rows: Rows | None = None

    def of(self, arrays: Sequence[Any]) -> Signature:
        """The signature for as many rows as the arrays have, inputs first.

        Arrays without a shape leave it as it is. Raises ShapeError for rows outside the
        range.
        """
        if self.rows is None:
            return self
        if self.rows.shapes:
            return self._listed(self.rows, arrays)
        shapes = [
            tuple(getattr(arrays[place], "shape", ()))
            for place in sorted(self.rows.ranged)
            if place < len(arrays)
        ]
        count = next((int(shape[0]) for shape in shapes if shape), self.rows.high)
        if not self.rows.low <= count <= self.rows.high:
            limits = f"{self.rows.low} to {self.rows.high}"
            raise ShapeError(
                f"{self.symbol}: {self.rows.name} is {count}, outside its range {limits}"
            )
        arguments = tuple(
            replace(argument, shape=(count, *argument.shape[1:]))
            if place in self.rows.ranged
            else argument
            for place, argument in enumerate(self.arguments)
        )
        return replace(self, arguments=arguments)

    def _listed(self, rows: Rows, arrays: Sequence[Any]) -> Signature:
        place, dimension = rows.shown
        shape = tuple(getattr(arrays[place], "shape", ())) if place < len(arrays) else ()
        count = int(shape[dimension]) if len(shape) > dimension else rows.high
        if count not in rows.shapes:
            listed = ", ".join(map(str, rows.shapes))
            raise ShapeError(f"{self.symbol}: {rows.name} is {count}, which is none of {listed}")
        arguments = tuple(
            replace(argument, shape=shape)
            for argument, shape in zip(self.arguments, rows.shapes[count], strict=True)
        )
        return replace(self, arguments=arguments)

    @property
    def count(self) -> int | None:
        """The number of rows; None for a function without a range."""
        if self.rows is None:
            return None
        place, dimension = self.rows.shown if self.rows.shapes else (min(self.rows.ranged), 0)
        return self.arguments[place].shape[dimension]

    @property
    def consumed(self) -> frozenset[int]:
        """Places of the constants that only packing reads."""
        return (
            frozenset()
            if self.prepack is None
            else frozenset(self.prepack.constants) - frozenset(self.prepack.passed)
        )

    @property
    def inputs(self) -> tuple[Argument, ...]:
        return tuple(argument for argument in self.arguments if argument.role == "in")

    @property
    def outputs(self) -> tuple[Argument, ...]:
        return tuple(argument for argument in self.arguments if argument.role == "out")


def signature_of(entry: Mapping[str, Any]) -> Signature:
    """The signature of a function as `tuner_library_json` describes it.

    Raises KeyError, TypeError or ValueError for what describes none.
    """
    arguments = tuple(
        Argument(
            argument["name"],
            argument["dtype"],
            tuple(argument["shape"]),
            argument["role"],
            tuple(argument.get("bounded", {}).get("axes", ())),
            argument.get("bounded", {}).get("extents", ""),
        )
        for argument in entry["arguments"]
    )
    return Signature(
        entry["symbol"],
        arguments,
        tuple(entry["isa"]),
        int(entry["threads"]),
        _prepack(entry.get("prepack")),
        _rows(entry.get("rows")),
    )


def _rows(entry: Mapping[str, Any] | None) -> Rows | None:
    if entry is None:
        return None
    shapes = {
        int(listed["extent"]): tuple(tuple(shape) for shape in listed["shapes"])
        for listed in entry.get("listed", ())
    }
    ranged, shown = frozenset(entry["ranged"]), entry.get("shown", (0, 0))
    return Rows(entry["name"], entry["low"], entry["high"], ranged, shapes, (shown[0], shown[1]))


def _prepack(entry: Mapping[str, Any] | None) -> Prepack | None:
    if entry is None:
        return None
    packed = tuple(
        Argument(buffer["name"], buffer["dtype"], tuple(buffer["shape"]), "in")
        for buffer in entry["packed"]
    )
    return Prepack(entry["symbol"], tuple(entry["constants"]), packed, tuple(entry["passed"]))
