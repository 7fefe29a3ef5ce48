"""Labels that are texts, as numbers: libraries have no texts."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

_DOMAIN, _TEXTS = "ai.onnx.ml", "classlabels_strings"
# The attribute of each classifier that has its labels as integers.
_INTEGERS = {
    "LinearClassifier": "classlabels_ints",
    "SVMClassifier": "classlabels_ints",
    "TreeEnsembleClassifier": "classlabels_int64s",
}


def number_labels(model: Any) -> None:
    """Has the classifiers of a model give the places of their labels where these are texts, and
    so of texts that labels are taken from, in place. Outputs of texts become int64."""
    graph = model.graph
    changed = [_numbered(node) for node in graph.node if node.domain == _DOMAIN]
    changed += [_counted(graph, tensor) for tensor in graph.initializer]
    if any(changed):
        for value in (*graph.output, *graph.value_info):
            kind = value.type.tensor_type
            if kind.elem_type == onnx.TensorProto.STRING:
                kind.elem_type = onnx.TensorProto.INT64


def _numbered(node: Any) -> bool:
    """Whether an operator gave texts as labels."""
    integers = _INTEGERS.get(node.op_type)
    texts = next((a.strings for a in node.attribute if a.name == _TEXTS), ())
    if integers is None or not texts:
        return False
    kept = [a for a in node.attribute if a.name not in (_TEXTS, integers)]
    kept.append(helper.make_attribute(integers, [*range(len(texts))]))
    del node.attribute[:]
    node.attribute.extend(kept)
    return True


def _counted(graph: Any, tensor: Any) -> bool:
    """Whether a constant was of texts that labels are taken from, by their places."""
    count = len(tensor.string_data)
    if tensor.data_type != onnx.TensorProto.STRING or count != prod(tensor.dims):
        return False
    readers = [node for node in graph.node if tensor.name in node.input]
    if any(
        (node.domain, node.op_type) != (_DOMAIN, "ArrayFeatureExtractor")
        or node.input[0] != tensor.name
        for node in readers
    ):
        return False
    places = np.arange(count, dtype=np.int64).reshape(tuple(tensor.dims))
    tensor.CopyFrom(numpy_helper.from_array(places, tensor.name))
    return True
