"""One operator of an ONNX graph, with what its attributes and inputs say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import onnx

from tuner.models.errors import ModelRefused
from tuner.models.graph import Array
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.extents import scalar
from tuner.models.operators.formats import FORMATS, Format, Rounding
from tuner.models.operators.movement import reshape
from tuner.models.operators.scalars import Elem, cast_to
from tuner.models.operators.stacks import Items
from tuner.models.operators.values import Value
from tuner.workload.dtypes import DTYPE_BYTES, DType

Results = Value | Sequence[Value | None]  # None for one that is left out


class ComputedAtRunTime(ModelRefused):
    """A value that the import must know is computed when the model runs. It is known once
    the inputs that it is computed from are fixed."""

    def __init__(self, message: str, value: Value) -> None:
        super().__init__(message)
        self.value = value


@dataclass(frozen=True, kw_only=True)
class Node:
    """An operator with its inputs' values; None for an optional input that is left out, and
    for a sequence."""

    builder: GraphBuilder
    op: str
    name: str  # as the file has it, or its first output's
    inputs: tuple[Value | None, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    opset: int
    sequences: Mapping[int, Items] = field(default_factory=dict)  # by the place of the input

    def __getitem__(self, place: int) -> Value:
        """An input that the operator cannot do without."""
        value = self.optional(place)
        if value is None:
            raise self.refusal(f"has no input {place}")
        return value

    def optional(self, place: int) -> Value | None:
        return self.inputs[place] if place < len(self.inputs) else None

    @property
    def items(self) -> Items:
        """The sequence that the operator reads, an empty one if none."""
        return next(iter(self.sequences.values()), ())

    def known(self, place: int) -> Array | None:
        """The content of an input that is known at import; None where it is left out."""
        value = self.optional(place)
        if value is None:
            return None
        if value.array is None:
            raise self.late_number(place)
        return value.array

    def ints(self, place: int) -> list[int] | None:
        array = self.known(place)
        return None if array is None else [int(number) for number in array.reshape(-1)]

    def numbers(self, place: int) -> list[int | Late]:
        """Integers that are known at import, or that extents bound.

        Raises ComputedAtRunTime for others.
        """
        value = self.optional(place)
        if value is None or value.array is not None or value.limits is None:
            return [*(self.ints(place) or [])]
        limits = value.limits
        low, high = limits.low.reshape(-1).tolist(), limits.high.reshape(-1).tolist()
        if any(first < 0 and first != last for first, last in zip(low, high, strict=True)):
            raise self.late_number(place)
        return [
            int(last) if first == last else Late(int(last), number)
            for first, last, number in zip(low, high, limits.numbers, strict=True)
        ]

    def elements(self, place: int) -> list[int | Elem]:
        """The integers of a vector, those computed at run time as scalars of the program."""
        value = self.optional(place)
        if value is None or value.array is not None:
            return [*(self.ints(place) or [])]
        if value.limits is not None and value.limits.low.min(initial=0) >= 0:
            return [
                scalar(number.number) if isinstance(number, Late) else number
                for number in self.numbers(place)
            ]
        flat = reshape(value, [value.elements])
        return [cast_to("int64", flat[i]) for i in range(value.elements)]

    def late_number(self, place: int) -> ComputedAtRunTime:
        """The refusal of an input that decides a shape."""
        return self.computed_at_run_time(
            self[place],
            f"computes its input {place} at run time; shapes and axes must be known at import",
        )

    def scalar(self, place: int, default: float) -> float:
        array = self.known(place)
        return default if array is None or not array.size else float(array.reshape(-1)[0])

    def attribute(self, name: str, default: Any) -> Any:
        return self.attributes.get(name, default)

    def axes(self, place: int) -> list[int] | None:
        """From an input (newer opsets) or the attribute `axes` (older ones)."""
        axes = self.attribute("axes", None)
        return list(axes) if axes is not None else self.ints(place)

    def refusal(self, reason: str) -> ModelRefused:
        return ModelRefused(f"operator {self.op} ({self.name[:80]!r}) {reason}")

    def computed_at_run_time(self, value: Value, reason: str) -> ComputedAtRunTime:
        """The refusal of a value that must be known at import and is not."""
        return ComputedAtRunTime(str(self.refusal(reason)), value)

    def late_extent(self) -> ComputedAtRunTime:
        """The refusal of an input with an extent that is computed at run time."""
        number = next(
            count for value in self.inputs if value is not None for count in value.counts.values()
        )
        return self.computed_at_run_time(
            number,
            "takes no extent that is computed at run time here, as one of its inputs has; it "
            "must be known at import",
        )


@dataclass(frozen=True, slots=True, eq=False)
class Late:
    """An extent that is computed at run time."""

    bound: int
    number: Value  # a scalar


Convert = Callable[[Node], Results]


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementType:
    """What the elements of a tensor of the file are, and the dtype that kernels hold them in."""

    dtype: DType
    format: Format | None = None  # where the dtype only holds the numbers


def element_type(number: int, what: str) -> ElementType:
    """The meaning of an ONNX element type. Raises ModelRefused."""
    if number == onnx.TensorProto.STRING:
        raise ModelRefused(
            f"{what} is of type string; libraries have no texts: encode them as numbers before the "
            f"model"
        )
    try:
        name = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number)).name
    except (KeyError, TypeError, ValueError):
        name = str(number)
    if name in FORMATS:
        return ElementType(dtype=FORMATS[name].storage, format=FORMATS[name])
    if name not in DTYPE_BYTES:
        spelt = onnx.TensorProto.DataType.Name(number).lower()
        types = ", ".join((*DTYPE_BYTES, *FORMATS))
        raise ModelRefused(f"{what} is of type {spelt}; known are {types}")
    return ElementType(dtype=cast(DType, name))


def rounding_of(node: Node) -> Rounding:
    """What a conversion does with what its result's format does not hold."""
    return Rounding(
        saturate=bool(node.attribute("saturate", 1)), mode=str(node.attribute("round_mode", "up"))
    )


def dtype_of(number: int, what: str) -> DType:
    """The dtype of an ONNX element type that kernels compute with. Raises ModelRefused."""
    element = element_type(number, what)
    if element.format is not None:
        raise ModelRefused(f"{what} is of type {element.format.name}, which is only converted to")
    return element.dtype


def array_of(value: Value) -> Array | None:
    """The content of a known value in the NumPy dtype that ONNX gives it."""
    if value.array is None or value.format is None:
        return value.array
    return value.format.typed(value.array)
