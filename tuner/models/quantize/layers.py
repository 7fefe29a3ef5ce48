"""Which operators of a float network can compute with 8-bit integers, and which tensors
are integers then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.models.arrays import Array

# Operators of one tensor that move elements or choose among them: their result has the
# integers of what they read.
MOVES = frozenset({
    "DepthToSpace", "Flatten", "GlobalMaxPool", "Identity", "MaxPool", "Reshape", "Slice",
    "SpaceToDepth", "Squeeze", "Transpose", "Unsqueeze",
})  # fmt: skip
# Operators point by point, which become the end of what they read.
_POINTWISE = frozenset({
    "Add", "Clip", "Div", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mul", "PRelu",
    "Relu", "Sigmoid", "Sub", "Tanh",
})  # fmt: skip
# Operators that have an integer form where all that they read are integers anyway.
_JOINS = frozenset({"Add", "AveragePool", "Concat", "GlobalAveragePool", "Mul"})
_PRODUCTS = frozenset({"Conv", "Gemm", "MatMul"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """An operator that can be computed with integers."""

    place: int  # among the graph's operators
    name: str
    op: str
    activations: tuple[str, ...]  # tensors that it reads as integers
    weight: str = ""  # constant that it reads as integers; empty: none
    axis: int = 0  # of the weight: an index has a scale of its own
    bias: str = ""  # constant that is added to its sums


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatOperator:
    """An operator that stays in float."""

    name: str
    op: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What can be quantised in a network."""

    layers: tuple[Layer, ...]
    left: tuple[FloatOperator, ...]  # operators with weights that are no layers
    moved: Mapping[str, str]  # result of a move -> what it moves

    def tensors(self, layers: Iterable[Layer]) -> dict[str, str]:
        """The tensors that are integers where these layers are computed with them, each
        with the one that decides its range."""
        names = dict.fromkeys(name for layer in layers for name in layer.activations)
        for name in list(names):
            while name in self.moved:
                name = self.moved[name]
                names[name] = None
        return {name: self._source(name) for name in names}

    def _source(self, name: str) -> str:
        while name in self.moved:
            name = self.moved[name]
        return name


def plan_of(model: Any, constants: Mapping[str, Any], kept: Sequence[str] = ()) -> Plan:
    """The plan for a checked `ModelProto`. Operators with the names `kept` stay in float."""
    return _Planner(model, constants, kept).plan()


def name_of(node: Any) -> str:
    """The operator's name, or that of its first result."""
    return str(node.name or next((name for name in node.output if name), "?"))


class _Planner:
    def __init__(self, model: Any, constants: Mapping[str, Any], kept: Sequence[str]) -> None:
        self.nodes = list(model.graph.node)
        self.constants = constants
        self.kept = {*kept}
        values = (*model.graph.input, *model.graph.value_info, *model.graph.output)
        self.types = {value.name: value.type.tensor_type.elem_type for value in values}
        self.layers: dict[int, Layer] = {}
        self.left: list[FloatOperator] = []

    def plan(self) -> Plan:
        for place, node in enumerate(self.nodes):
            if all(name in self.constants for name in node.output):
                continue
            if node.op_type in _PRODUCTS and node.domain in ("", "ai.onnx"):
                self.product(place, node)
            elif any(self.is_matrix(name) for name in node.input):
                self.leave(node, "has no form in 8-bit integers here")
        moved = {
            node.output[0]: node.input[0]
            for node in self.nodes
            if node.op_type in MOVES and len(node.output) == 1 and self.is_float(node.input[0])
        }
        self.join(moved)
        layers = tuple(self.layers[place] for place in sorted(self.layers))
        reached = self.integers(moved)
        return Plan(
            layers=layers,
            left=tuple(self.left),
            moved={name: before for name, before in moved.items() if before in reached},
        )

    # --- products

    def product(self, place: int, node: Any) -> None:
        activation, factor = node.input[0], node.input[1]
        bias = node.input[2] if len(node.input) > 2 else ""
        weight = self.constants.get(factor)
        if node.name in self.kept or name_of(node) in self.kept:
            self.leave(node, "is kept as asked")
        elif not self.is_float(activation):
            self.leave(node, "does not compute in float32")
        elif weight is None and (node.op_type != "MatMul" or not self.is_float(factor)):
            self.leave(node, "has weights that are computed at run time")
        elif weight is not None and not _fits(weight):
            self.leave(node, "has weights that are no finite matrix of float32")
        elif weight is None:
            self.layer(place, node, activations=(activation, factor))
        else:
            self.layer(
                place,
                node,
                activations=(activation,),
                weight=factor,
                axis=_axis(node, np.ndim(weight)),
                bias=bias if bias in self.constants and _plain_bias(node) else "",
            )

    def layer(self, place: int, node: Any, **given: Any) -> None:
        self.layers[place] = Layer(place=place, name=name_of(node), op=node.op_type, **given)

    def leave(self, node: Any, reason: str) -> None:
        self.left.append(FloatOperator(name=name_of(node), op=node.op_type, reason=reason))

    # --- what follows them

    def join(self, moved: Mapping[str, str]) -> None:
        """Makes layers of the operators whose inputs are integers by others' choice."""
        count = -1
        while count < len(self.layers):
            count = len(self.layers)
            reached = self.integers(moved)
            for place, node in enumerate(self.nodes):
                inputs = [name for name in node.input if name]
                if (
                    node.op_type in _JOINS
                    and place not in self.layers
                    and name_of(node) not in self.kept
                    and all(name in reached and self.is_float(name) for name in inputs)
                ):
                    self.layer(place, node, activations=tuple(dict.fromkeys(inputs)))

    def integers(self, moved: Mapping[str, str]) -> set[str]:
        """Tensors that layers read, or that can be written as integers as they are made."""
        reached = {name for layer in self.layers.values() for name in layer.activations}
        for place, node in enumerate(self.nodes):
            if place in self.layers:
                reached.add(node.output[0])
            elif node.op_type in MOVES or node.op_type in _POINTWISE:
                changing = [name for name in node.input if name and name not in self.constants]
                if len(changing) == 1 and changing[0] in reached:
                    reached.add(node.output[0])
        # A move's operand can be, if what it moves to is read so and something computes it.
        for name in list(reached):
            while name in moved:
                name = moved[name]
                reached.add(name)
        return reached

    def is_float(self, name: str) -> bool:
        return name not in self.constants and self.types.get(name) == 1

    def is_matrix(self, name: str) -> bool:
        """Whether a name is of weights: a constant of several dimensions and floats."""
        array = self.constants.get(name)
        return (
            isinstance(array, np.ndarray)
            and array.dtype.kind == "f"
            and sum(extent > 1 for extent in array.shape) > 1
        )


def _fits(weight: Array) -> bool:
    is_matrix = weight.dtype == np.float32 and weight.ndim > 1 and weight.size > 0
    return is_matrix and bool(np.isfinite(weight).all())


def _axis(node: Any, rank: int) -> int:
    """The dimension of the weights that counts results."""
    if node.op_type == "Conv":
        return 0
    if node.op_type == "Gemm":
        return 0 if _attribute(node, "transB", 0) else 1
    return rank - 1


def _plain_bias(node: Any) -> bool:
    """Whether the bias is added to the sums as they are."""
    return (
        node.op_type == "Conv"
        or _attribute(node, "alpha", 1.0) == _attribute(node, "beta", 1.0) == 1
    )


def _attribute(node: Any, name: str, default: float) -> float:
    for attribute in node.attribute:
        if attribute.name == name:
            return float(attribute.f if attribute.type == 1 else attribute.i)
    return default
