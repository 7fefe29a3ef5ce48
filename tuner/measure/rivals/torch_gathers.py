"""PyTorch's routes to operators whose inputs say where others are read or written."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from tuner.measure.rivals.torch_call import Call, Family, Params, same


def _embedding(
    torch: Any, op: str, params: Params, operands: tuple[Any, ...], shape: tuple[int, ...]
) -> list[Call]:
    table, indices = sorted(operands, key=lambda tensor: not tensor.is_floating_point())
    return [
        (
            "embedding",
            lambda: torch.nn.functional.embedding(indices, table),
            lambda y: y.reshape(shape),
        )
    ]


def _sparse_product(
    torch: Any, op: str, params: Params, operands: tuple[Any, ...], shape: tuple[int, ...]
) -> list[Call]:
    """By MKL, which has no narrow floats."""
    pointers, columns, values, dense = operands
    if params["dtype"] not in ("float32", "float64"):
        return []
    size = (len(pointers) - 1, len(dense))
    matrix = _compressed(torch, pointers, columns, values, size)
    return [("csr", lambda: matrix @ dense, same)]


def _compressed(torch: Any, pointers: Any, columns: Any, values: Any, size: tuple[int, int]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that compressed rows are in beta
        return torch.sparse_csr_tensor(pointers, columns, values, size=size, check_invariants=False)


def _sampled_product(
    torch: Any, op: str, params: Params, operands: tuple[Any, ...], shape: tuple[int, ...]
) -> list[Call]:
    """Of places in the order of their rows, as trials have them."""
    rows, columns, a, b = operands
    if params["dtype"] not in ("float32", "float64"):
        return []
    pointers = torch.zeros(len(a) + 1, dtype=rows.dtype)
    pointers[1:] = torch.bincount(rows, minlength=len(a)).cumsum(0)
    zeros = torch.zeros(len(rows), dtype=a.dtype)
    pattern = _compressed(torch, pointers, columns, zeros, (len(a), len(b)))
    sampled = torch.sparse.sampled_addmm
    return [("sampled", lambda: sampled(pattern, a, b.t(), beta=0.0), lambda y: y.values())]


def _embedding_bag(
    torch: Any, op: str, params: Params, operands: tuple[Any, ...], shape: tuple[int, ...]
) -> list[Call]:
    pointers, indices, *weights, table = operands
    options = {
        "mode": "mean" if params["mode"] == "mean" else "sum",
        "per_sample_weights": weights[0] if weights else None,
        "include_last_offset": True,
    }
    bag = torch.nn.functional.embedding_bag
    return [("embedding_bag", lambda: bag(indices, table, pointers, **options), same)]


def _segments(
    torch: Any, op: str, params: Params, operands: tuple[Any, ...], shape: tuple[int, ...]
) -> list[Call]:
    pointers, rows = operands
    options = {"offsets": pointers.long(), "axis": 0, "unsafe": True}
    if params["mode"] == "mean":  # of an empty segment not a number
        return []
    reduce = torch.segment_reduce
    return [("segment_reduce", lambda: reduce(rows, params["mode"], **options), same)]


def _scattered(
    torch: Any, op: str, params: Params, operands: tuple[Any, ...], shape: tuple[int, ...]
) -> list[Call]:
    """Of sums alone: of a row that no index names its other reductions give 0."""
    indices, rows = operands
    if params["mode"] != "sum":
        return []
    zeros = torch.zeros(shape, dtype=rows.dtype)
    return [("index_add", lambda: zeros.index_add(0, indices, rows), same)]


def _gathered_product(
    torch: Any, op: str, params: Params, operands: tuple[Any, ...], shape: tuple[int, ...]
) -> list[Call]:
    indices, table, factor = operands
    factor = factor.t() if params["transpose_b"] else factor
    return [("index_select", lambda: table.index_select(0, indices) @ factor, same)]


def _chosen_classes(
    torch: Any, op: str, params: Params, operands: tuple[Any, ...], shape: tuple[int, ...]
) -> list[Call]:
    """Of weights in float32, as the vectors are."""
    classes, x, weights, bias, *offset = operands
    if params["dtype"] != "float32":
        return []
    classes = classes.long()
    place = torch.nn.functional.embedding

    def call() -> Any:
        logits = torch.bmm(place(classes, weights), x.unsqueeze(2)).squeeze(2) + bias[classes]
        logits = logits + offset[0] if offset else logits
        return torch.softmax(logits, 1) if params["softmax"] else logits

    return [("embedding", call, same)]


def _chosen_classes_gradient(
    torch: Any, op: str, params: Params, operands: tuple[Any, ...], shape: tuple[int, ...]
) -> list[Call]:
    """As weighted bags of rows of weights, or as a product with compressed rows by MKL."""
    if params["dtype"] != "float32":
        return []
    if params["of"] == "weights":
        pointers, samples, values, x = operands
        matrix = _compressed(torch, pointers, samples, values, (len(pointers) - 1, len(x)))
        return [("csr", lambda: matrix @ x, same)]
    classes, gradient, weights = operands
    bag = torch.nn.functional.embedding_bag
    return [
        (
            "embedding_bag",
            lambda: bag(classes, weights, per_sample_weights=gradient, mode="sum"),
            same,
        )
    ]


GATHERS: Mapping[str, Family] = {
    "embedding": _embedding, "embedding_bag": _embedding_bag, "segment_reduce": _segments,
    "spmv": _sparse_product, "spmm": _sparse_product, "sddmm": _sampled_product,
    "scatter_add": _scattered, "gather_matmul": _gathered_product,
    "slide_layer": _chosen_classes, "slide_layer_gradient": _chosen_classes_gradient,
}  # fmt: skip
