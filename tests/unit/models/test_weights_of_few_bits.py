"""Products with packed weights in a model: one kernel, which unpacks in registers."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.targets import GOLDEN_COVE
from tuner.models.passes.fusion import fuse
from tuner.models.reading import read_graph
from tuner.spaces.by_target import space_of
from tuner.spaces.rewrite.quantized_products import MOST_ROWS
from tuner.workload.expression import Expression
from tuner.workload.spec import workload_from_expression

UNITS, FEATURES, BLOCK = 40, 96, 32


def model(rows: int, bits: int) -> bytes:
    """A product with packed weights and zero points, and a bias."""
    groups, rng = FEATURES // BLOCK, np.random.default_rng(5)
    shapes = {
        "w": (np.uint8, (UNITS, groups, BLOCK * bits // 8)),
        "s": (np.float32, (UNITS * groups,)),
        "z": (np.uint8, (UNITS * -(-groups * bits // 8),)),
        "b": (np.float32, (UNITS,)),
    }
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s", "z", "", "b"], ["y"], domain="com.microsoft",
        K=FEATURES, N=UNITS, bits=bits, block_size=BLOCK,
    )  # fmt: skip
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, FEATURES])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, UNITS])],
        [
            numpy_helper.from_array(rng.integers(0, 99, shape).astype(dtype), name)
            for name, (dtype, shape) in shapes.items()
        ],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    content: bytes = helper.make_model(graph, opset_imports=opsets).SerializeToString()
    return content


def sketches(rows: int, bits: int) -> set[str]:
    """Of the only kernel of the model."""
    (node,) = fuse(read_graph(model(rows, bits), {})).nodes
    assert isinstance(node, Expression)
    space = space_of(workload_from_expression(node), GOLDEN_COVE, threads=1)
    return {str(name).partition(":")[2].partition("_")[0] for name in space.space.knobs[0].values}


@pytest.mark.parametrize(("bits", "word"), [(4, "lookup"), (8, "grouped")])
@pytest.mark.parametrize("rows", [1, 16])
def test_few_rows_unpack_weights_where_they_multiply(rows: int, bits: int, word: str) -> None:
    assert word in sketches(rows, bits)


def test_many_rows_unpack_weights_once() -> None:
    assert "lookup" not in sketches(MOST_ROWS + 1, 4)
