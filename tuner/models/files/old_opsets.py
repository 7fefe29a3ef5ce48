"""Operators of opsets 1 to 8 in the form that opset 9 gives them.

Before opset 7 an operator lined its second operand up with an axis of the first. Some
operators had attributes for what are inputs since, or for training. After the rewriting
one set of rules serves all files, in the reader and in ONNX's reference evaluator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tuner.models.errors import ModelRefused

OLDEST = 9  # the least opset that is read as it is
_FIRST_WITH_BROADCASTING = 7
_BROADCASTING = ("Add", "And", "Div", "Equal", "Gemm", "Greater", "Less", "Mul", "Or", "Pow",
                 "Sub", "Xor")  # fmt: skip
_DOMAINS = ("", "ai.onnx")
_DROPPED = ("axis", "broadcast")
# Attributes that said how an operator trains or reuses memory; none changes an inference.
_WITHOUT_MEANING = ("consumed_inputs", "is_test", "output_sequence")


class _Body:
    """A graph while it is rewritten: the ranks and constants that its operators see."""

    def __init__(self, graph: Any, version: int, outer: _Body | None = None) -> None:
        self.version = version
        self.nodes: list[Any] = []
        self.ranks: dict[str, int] = dict(outer.ranks) if outer else {}
        self.constants: dict[str, Any] = dict(outer.constants) if outer else {}
        for value in (*graph.input, *graph.value_info, *graph.output):
            if value.type.tensor_type.HasField("shape"):
                self.ranks[value.name] = len(value.type.tensor_type.shape.dim)
        for tensor in graph.initializer:
            self.constants[tensor.name] = tensor
            self.ranks[tensor.name] = len(tensor.dims)

    def rank(self, node: Any, place: int) -> int:
        try:
            return self.ranks[node.input[place]]
        except KeyError:
            raise _refusal(node, f"has an input {place} of unknown rank") from None

    def known(self, node: Any, place: int) -> list[int]:
        """The integers of a constant input."""
        try:
            tensor = self.constants[node.input[place]]
        except KeyError:
            raise _refusal(node, f"computes its input {place} at run time") from None
        return [int(number) for number in numpy_helper.to_array(tensor).reshape(-1)]

    def fresh(self, node: Any, purpose: str) -> str:
        return f"{node.output[0]}_{purpose}_as_in_opset_9"

    def constant(self, node: Any, purpose: str, numbers: Sequence[float], dtype: type) -> str:
        """The name of a new constant."""
        name = self.fresh(node, purpose)
        tensor = numpy_helper.from_array(np.array(numbers, dtype), name)
        self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        return name


def is_old(model: Any) -> bool:
    """Whether the model must be rewritten. Scans changed between opsets 8 and 9, so a file
    with scans of opset 8 stays as it is."""
    version = _version(model)
    return version < OLDEST and all(node.op_type != "Scan" for node in model.graph.node)


def modernised(model: Any) -> Any:
    """The model, in place, in opset 9.

    The types of its tensors have been inferred. Raises ModelRefused for an operator that
    opset 9 cannot say, such as one whose repeats are computed at run time.
    """
    _rewrite(model.graph, _version(model), None)
    for entry in model.opset_import:
        if entry.domain in _DOMAINS:
            entry.version = OLDEST
    return model


def _version(model: Any) -> int:
    return max(int(entry.version) for entry in model.opset_import if entry.domain in _DOMAINS)


def _rewrite(graph: Any, version: int, outer: _Body | None) -> None:
    body = _Body(graph, version, outer)
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                _rewrite(inner, version, body)
        if node.op_type == "Constant" and "value" in (given := _attributes(node)):
            body.constants[node.output[0]] = given["value"]
        for name in _WITHOUT_MEANING:
            _removed(node, name)
        if node.op_type in _BROADCASTING:
            _line_up(body, node)
        elif node.op_type in _RULES:
            _RULES[node.op_type](body, node)
        body.nodes.append(node)
    rewritten = [onnx.NodeProto.FromString(node.SerializeToString()) for node in body.nodes]
    del graph.node[:]
    graph.node.extend(rewritten)


def _attributes(node: Any) -> dict[str, Any]:
    return {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}


def _removed(node: Any, *names: str) -> None:
    kept = [entry for entry in node.attribute if entry.name not in names]
    del node.attribute[:]
    node.attribute.extend(kept)


def _set(node: Any, **attributes: Any) -> None:
    _removed(node, *attributes)
    node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())


def _line_up(body: _Body, node: Any) -> None:
    """The second operand with ones behind it, where an axis of the first says its place."""
    given = _attributes(node)
    _removed(node, *_DROPPED)
    if not given.get("broadcast") or "axis" not in given or node.op_type == "Gemm":
        return
    rank, own = body.rank(node, 0), body.rank(node, 1)
    behind = rank - given["axis"] % max(rank, 1) - own
    if behind < 0:
        raise _refusal(node, f"lines {own} dimensions up with axis {given['axis']} of {rank}")
    _unsqueeze(body, node, 1, behind)


def _unsqueeze(body: _Body, node: Any, place: int, behind: int) -> None:
    """Gives an input dimensions of one element behind its own."""
    if behind:
        own, name = body.rank(node, place), body.fresh(node, "operand")
        axes = list(range(own, own + behind))
        body.nodes.append(helper.make_node("Unsqueeze", [node.input[place]], [name], axes=axes))
        node.input[place] = name


def _slope(body: _Body, node: Any) -> None:
    """A slope for each channel, the second dimension."""
    if body.version >= _FIRST_WITH_BROADCASTING:
        return
    if body.rank(node, 1) == 1 and body.rank(node, 0) > 2:
        _unsqueeze(body, node, 1, body.rank(node, 0) - 2)


def _cast(body: _Body, node: Any) -> None:
    to = _attributes(node).get("to")
    if isinstance(to, bytes):
        try:
            _set(node, to=onnx.TensorProto.DataType.Value(to.decode("ascii", "replace").upper()))
        except ValueError:
            raise _refusal(node, f"casts to {to[:40]!r}") from None


def _concat(body: _Body, node: Any) -> None:
    _set(node, axis=_attributes(node).get("axis", 1))


def _power(body: _Body, node: Any) -> None:
    _set(node, p=int(_attributes(node).get("p", 2)))


def _pad(body: _Body, node: Any) -> None:
    given = _attributes(node)
    if "paddings" in given:
        _removed(node, "paddings")
        _set(node, pads=given["paddings"])


def _reshape(body: _Body, node: Any) -> None:
    if len(node.input) == 1:
        node.input.append(
            body.constant(node, "shape", _attributes(node).get("shape", []), np.int64)
        )
        _removed(node, "shape")


def _split(body: _Body, node: Any) -> None:
    if len(node.input) == 2:
        _set(node, split=body.known(node, 1))
        del node.input[1]
    _set(node, axis=_attributes(node).get("axis", 0))


def _tile(body: _Body, node: Any) -> None:
    if len(node.input) == 3:
        (count,), (axis,), rank = body.known(node, 1), body.known(node, 2), body.rank(node, 0)
        repeats = [count if place == axis % rank else 1 for place in range(rank)]
        del node.input[1:]
        node.input.append(body.constant(node, "repeats", repeats, np.int64))


def _upsample(body: _Body, node: Any) -> None:
    given = _attributes(node)
    scales = given.get("scales", [])
    if "height_scale" in given:
        scales = [1.0, 1.0, given["height_scale"], given["width_scale"]]
    mode = "linear" if given.get("mode") in (b"bilinear", b"linear") else "nearest"
    _removed(node, "height_scale", "width_scale", "scales")
    _set(node, mode=mode)
    node.input.append(body.constant(node, "scales", scales, np.float32))


def _statistics(body: _Body, node: Any) -> None:
    if not _attributes(node).get("spatial", 1) and body.rank(node, 0) > 2:
        raise _refusal(node, "has statistics for each element (spatial=0)")
    _removed(node, "spatial")


def _refusal(node: Any, reason: str) -> ModelRefused:
    name = node.name or next(iter(node.output), "?")
    return ModelRefused(
        f"operator {node.op_type} ({name[:80]!r}) {reason}; export with opset {OLDEST} or later"
    )


_RULES: Mapping[str, Callable[[_Body, Any], None]] = {
    "BatchNormalization": _statistics,
    "Cast": _cast,
    "Concat": _concat,
    "GlobalLpPool": _power,
    "LpPool": _power,
    "PRelu": _slope,
    "Pad": _pad,
    "Reshape": _reshape,
    "Split": _split,
    "Tile": _tile,
    "Upsample": _upsample,
}
