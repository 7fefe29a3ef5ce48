"""Padding of max pools never wins, whatever the dtype holds."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.graph_values import graph_outputs
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.pooling import max_pool, window
from tuner.workload.dtypes import INTEGER_RANGES, DType
from tuner.workload.expression import Read, walk


@pytest.mark.parametrize("dtype", ["float32", *INTEGER_RANGES])
def test_padding_is_the_least_number_of_the_dtype(dtype: DType) -> None:
    builder = GraphBuilder()
    x = builder.input([1, 1, 4], dtype)
    over = window([4], [3], [1], [1, 1], [1], ceil=False)
    graph = builder.graph([max_pool(x, over)], ["x", "y"])
    least = -np.inf if dtype == "float32" else INTEGER_RANGES[dtype][0]
    pads = [
        part.pad
        for node in graph.expressions
        for stage in node.stages
        for part in walk(stage.body)
        if isinstance(part, Read)
    ]
    assert [pad.value for pad in pads if pad is not None] == [least]
    row = np.array([[[least, least, least, 7]]], dtype)
    (y,) = graph_outputs(graph, [row])
    assert y.reshape(-1).tolist() == [least, least, 7, 7]
