"""What mixtures of experts call: counts of tokens, and products by groups of rows."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.models.from_torch.call import Call, Convert
from tuner.models.operators.experts import grouped_matmul, histogram
from tuner.models.operators.values import Value


def histc(call: Call) -> Value:
    low, high = float(call["min"]), float(call["max"])
    if low == high:
        raise call.refusal("counts between the least and the greatest element; give min and max")
    return histogram(call.value("self"), call["bins"], low, high)


def grouped_product(call: Call) -> Value:
    """Of the rows of a matrix, which lie by group, with a matrix of each group."""
    rows, matrices = call.value("self"), call.value("mat2")
    if rows.rank != 2 or matrices.rank != 3 or call["offs"] is None:
        raise call.refusal("is known for rows by group alone: two dimensions times three")
    if call.get("bias") is not None:
        raise call.refusal("adds a bias")
    return grouped_matmul(rows, matrices, call.value("offs"), call.dtype)


def grouped_product_of_transformers(call: Call) -> Value:
    """Hugging Face's own operator for dtypes that `aten._grouped_mm` does not take."""
    rows, matrices = call.value("input"), call.value("weight")
    return grouped_matmul(rows, matrices, call.value("offs"), call.dtype)


TABLE: Mapping[str, Convert] = {
    "aten._grouped_mm.default": grouped_product,
    "aten.histc.default": histc,
    "transformers.grouped_mm_fallback.default": grouped_product_of_transformers,
}
