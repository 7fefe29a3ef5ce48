"""One call of an ATen operator, with its arguments as values of the builder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from tuner.models.errors import ModelRefused
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.elementwise import cast as cast_value
from tuner.models.operators.movement import reshape
from tuner.models.operators.values import Value
from tuner.workload.dtypes import DTYPE_BYTES, DType

Results = Value | Sequence[Value | None]


@dataclass(frozen=True, kw_only=True)
class Call:
    """`arguments` are in the order of the operator's schema, defaults filled in; tensors
    are values, or numbers where a number was given for one."""

    builder: GraphBuilder
    op: str  # e.g. aten.add.Tensor
    name: str  # in the program
    arguments: Mapping[str, Any]
    dtypes: tuple[DType, ...]  # of the results
    shapes: tuple[tuple[int, ...], ...]  # of the results
    used: frozenset[int] = frozenset({0})  # places of the results that somebody reads
    # Of extents that are computed at run time the shapes above have the bounds: the counts of
    # the first result's dimensions, and the arguments in which such extents stand as numbers.
    counts: Mapping[int, Value] = field(default_factory=dict)
    late: frozenset[str] = frozenset()

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self.arguments.get(name, default)

    @property
    def dtype(self) -> DType:
        return self.dtypes[0]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.shapes[0]

    def value(self, name: str, dtype: DType | None = None) -> Value:
        """A tensor argument in a dtype (default: its own); a number as a tensor of the
        result's."""
        argument = self.arguments[name]
        if not isinstance(argument, Value):
            return self.builder.constant(argument, dtype or self.dtype)
        return argument if dtype is None else cast_value(argument, dtype)

    def refusal(self, reason: str) -> ModelRefused:
        return ModelRefused(f"operator {self.op} ({self.name!r}) {reason}")


Convert = Callable[[Call], Results]


def along(convert: Convert) -> Convert:
    """The program of an operator along a dimension, also of tensors that have none: PyTorch
    takes these for vectors of one element."""

    def converted(call: Call) -> Results:
        x = call.get("self")
        if not isinstance(x, Value) or x.rank:
            return convert(call)
        arguments = {
            name: reshape(each, [1]) if isinstance(each, Value) and not each.rank else each
            for name, each in call.arguments.items()
        }
        shapes = tuple(shape or (1,) for shape in call.shapes)
        results = convert(replace(call, arguments=arguments, shapes=shapes))
        if isinstance(results, Value):
            return reshape(results, call.shape)
        return [
            each and reshape(each, shape) for each, shape in zip(results, call.shapes, strict=True)
        ]

    return converted


# Of complex numbers, which are pairs of reals.
_PARTS = {"complex64": "float32", "complex128": "float64"}


def dtype_of(torch_dtype: Any, what: str) -> DType:
    """Of complex numbers that of a part. Raises ModelRefused for one that expressions do
    not have."""
    name = str(torch_dtype).rpartition(".")[2]
    name = _PARTS.get(name, name)
    if name not in DTYPE_BYTES:
        raise ModelRefused(f"{what} is {name}; known are {', '.join(DTYPE_BYTES)}")
    return cast(DType, name)
