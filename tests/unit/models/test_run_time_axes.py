"""Operators along axes that are inputs of the model: against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.models.bounded_models import FLOAT, Array, agree, compare, model_of, node, read
from tuner.models.errors import ModelRefused

REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp", "ReduceProd")


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions_along_axes_of_run_time_keep_the_dimensions(op: str) -> None:
    draw = np.random.default_rng(5)
    x = draw.standard_normal((3, 1, 4)).astype(np.float32)
    content = model_of({"x": x, "axes": np.zeros(2, np.int64)}, [node(op, "x axes")], {"y": FLOAT})
    agree(content, *({"x": x, "axes": np.array(axes)} for axes in ([0, 2], [-1, 1], [1, 0])))


def test_dimensions_of_run_time_are_not_dropped() -> None:
    inputs: dict[str, Array] = {
        "x": np.zeros((3, 4), np.float32),
        "axes": np.zeros(1, np.int64),
    }
    with pytest.raises(ModelRefused, match="computes its input 1 at run time"):
        read(model_of(inputs, [node("ReduceSum", "x axes", keepdims=0)], {"y": FLOAT}))


@pytest.mark.parametrize("options", [{}, {"exclusive": 1}, {"reverse": 1}])
def test_prefixes_along_an_axis_of_run_time(options: dict[str, Any]) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
    content = model_of(
        {"x": x, "axis": np.array(0)}, [node("CumSum", "x axis", **options)], {"y": FLOAT}
    )
    cases = [{"x": x, "axis": np.array(axis)} for axis in (0, 1, -1, -2)]
    compare(read(content), content, *cases)
