"""Average pools whose number of windows is rounded up: evaluator and graph against loops."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tuner.models.operators.pooling import window
from tuner.models.reading import read_graph
from tuner.models.reference.evaluation import evaluate_graph
from tuner.models.reference.onnx_evaluation import evaluate

Array = np.ndarray[Any, np.dtype[Any]]


def averages(
    x: Array, size: int, stride: int, before: int, behind: int, *, padding_counts: bool
) -> Array:
    """Of a row: elements behind the padding count for no average."""
    count = ceil((x.size + before + behind - size) / stride) + 1
    count -= (count - 1) * stride >= x.size + before
    rows = []
    for number in range(count):
        begin = number * stride - before
        end = min(begin + size, x.size + behind)
        elements = x[max(begin, 0) : min(end, x.size)]
        rows.append(elements.sum() / (end - begin if padding_counts else elements.size))
    return np.array(rows)


@pytest.mark.parametrize("padding_counts", [False, True])
@pytest.mark.parametrize(
    ("size", "stride", "before", "behind"),
    [(1280, 1280, 0, 0), (3, 2, 0, 0), (3, 2, 1, 1), (3, 3, 0, 1), (4, 3, 2, 0), (2, 5, 0, 0)],
)
def test_the_last_window_ends_behind_the_tensor(
    size: int, stride: int, before: int, behind: int, padding_counts: bool
) -> None:
    x = np.random.default_rng(0).standard_normal((1, 1, 8)).astype(np.float32)
    node = helper.make_node(
        "AveragePool",
        ["x"],
        ["y"],
        ceil_mode=1,
        kernel_shape=[size],
        strides=[stride],
        pads=[before, behind],
        count_include_pad=int(padding_counts),
    )
    right = averages(x[0, 0], size, stride, before, behind, padding_counts=padding_counts)
    graph = helper.make_graph(
        [node],
        "pool",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, right.size])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    (reference,) = evaluate(model, [x])
    np.testing.assert_allclose(reference[0, 0], right, rtol=1e-5, atol=1e-6)
    read = read_graph(model.SerializeToString(), {})
    computed = evaluate_graph(read, [x])[read.outputs[0]]
    np.testing.assert_allclose(computed.reshape(-1), right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("size", "pads", "dilation", "reached"),
    [(1280, [0, 0], 1, 7), (1280, [1, 2], 1, 10), (5, [0, 0], 2, 4), (7, [0, 0], 1, 7)],
)
def test_a_window_reaches_no_farther_than_the_padding(
    size: int, pads: list[int], dilation: int, reached: int
) -> None:
    over = window([7], [size], [1280], pads, [dilation], ceil=True)
    assert over.kernel == (reached,) and over.sizes == (1,)
