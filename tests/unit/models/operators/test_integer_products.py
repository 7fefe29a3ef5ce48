"""Products of 8-bit integers against exact sums: zero points at both ends, borders,
channels that no instruction's group divides, groups and single channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from tests.support.graph_values import graph_outputs
from tuner.models.graph import Graph
from tuner.models.reading import read_graph
from tuner.workload.expression import Cast, walk

Array = np.ndarray[Any, np.dtype[Any]]
U8, I8, I32 = TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32
KIND = {np.dtype(np.uint8): U8, np.dtype(np.int8): I8}


def graph_of(
    op: str, inputs: Mapping[str, Array], constants: Sequence[str], rank: int, **attributes: Any
) -> Graph:
    """The graph of one integer operator whose inputs, in order, have these values."""
    given_inputs = [name for name in inputs if name not in constants]
    graph = helper.make_graph(
        [helper.make_node(op, list(inputs), ["y"], **attributes)],
        "net",
        [
            helper.make_tensor_value_info(n, KIND[inputs[n].dtype], inputs[n].shape)
            for n in given_inputs
        ],
        [helper.make_tensor_value_info("y", I32, [None] * rank)],
        [numpy_helper.from_array(inputs[name], name) for name in constants],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return read_graph(model.SerializeToString(), {})


def integers(rng: np.random.Generator, dtype: Any, shape: Sequence[int]) -> Array:
    """Any, many of them at both ends."""
    limits = np.iinfo(dtype)
    every = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    ends = rng.choice(np.array([limits.min, limits.max], dtype), shape)
    return np.where(rng.random(shape) < 0.5, every, ends)


def convolved(x: Array, w: Array, groups: int, pad: int, stride: int) -> Array:
    """Sums over windows of x, 0 around it, in int64."""
    n, c = x.shape[:2]
    filters, each, k = w.shape[:3]
    padded = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (k, k), (2, 3))
    windows = windows[:, :, ::stride, ::stride]
    windows = windows.reshape(n, groups, c // groups, *windows.shape[2:])
    y = np.einsum("ngchwij,gocij->ngohw", windows, w.reshape(groups, filters // groups, each, k, k))
    return np.asarray(y.reshape(n, filters, *y.shape[3:]))


ZEROS: Mapping[type, tuple[int, int, int]] = {np.uint8: (0, 1, 255), np.int8: (-128, 0, 127)}


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    dtypes=st.sampled_from([(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8)]),
    zero=st.integers(0, 2),
    groups=st.sampled_from([(1, 3, 5), (1, 8, 4), (2, 4, 3), (5, 1, 1), (3, 1, 2)]),
    pad=st.integers(0, 2),
    stride=st.integers(1, 2),
    weight_zero=st.sampled_from([None, 0, 3]),
)
def test_convolutions_are_exact(
    seed: int,
    dtypes: tuple[type, type],
    zero: int,
    groups: tuple[int, int, int],
    pad: int,
    stride: int,
    weight_zero: int | None,
) -> None:
    rng = np.random.default_rng(seed)
    count, each, filters = groups
    x = integers(rng, dtypes[0], [2, count * each, 5, 4])
    w = integers(rng, dtypes[1], [count * filters, each, 3, 3])
    origin = dtypes[0](ZEROS[dtypes[0]][zero])
    inputs = {"x": x, "w": w, "xz": np.array(origin)}
    if weight_zero is not None:
        inputs["wz"] = np.array(weight_zero, dtypes[1])
    graph = graph_of(
        "ConvInteger", inputs, [*inputs][1:], 4,
        group=count, pads=[pad] * 4, strides=[stride, stride],
    )  # fmt: skip
    (y,) = graph_outputs(graph, [x])
    left = x.astype(np.int64) - int(origin)
    right = w.astype(np.int64) - (weight_zero or 0)
    assert (y == convolved(left, right, count, pad, stride)).all()


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 4)),
    batch=st.sampled_from([(), (2,)]),
    zeros=st.tuples(st.sampled_from([None, "all", "each"]), st.sampled_from([None, "all", "each"])),
    known=st.booleans(),
)
def test_matrix_products_are_exact(
    seed: int,
    shape: tuple[int, int, int],
    batch: tuple[int, ...],
    zeros: tuple[str | None, str | None],
    known: bool,
) -> None:
    rng, (m, k, n) = np.random.default_rng(seed), shape
    a, b = integers(rng, np.uint8, [*batch, m, k]), integers(rng, np.int8, [k, n])
    inputs = {"a": a, "b": b}
    left, right = a.astype(np.int64), b.astype(np.int64)
    if zeros[0] is not None:
        inputs["az"] = integers(rng, np.uint8, [] if zeros[0] == "all" or batch else [m])
        vector = inputs["az"].astype(np.int64)
        left = left - (vector[:, None] if vector.ndim else vector)
    if zeros[1] is not None:
        inputs.setdefault("az", np.array(0, np.uint8))
        inputs["bz"] = integers(rng, np.int8, [] if zeros[1] == "all" else [n])
        right = right - inputs["bz"].astype(np.int64)
    constants = [*inputs][1:] if known else []
    graph = graph_of("MatMulInteger", inputs, constants, len(batch) + 2)
    (y,) = graph_outputs(graph, [inputs[name] for name in inputs if name not in constants])
    assert (y == left @ right).all()


@pytest.mark.parametrize("zero", [0, 7, 255])
def test_factors_are_read_as_bytes(zero: int) -> None:
    """Zero points are taken off sums, so that instructions take the factors as they are."""
    rng = np.random.default_rng(0)
    x, w = integers(rng, np.uint8, [1, 8, 6, 6]), integers(rng, np.int8, [16, 8, 3, 3])
    inputs = {"x": x, "w": w, "z": np.array(zero, np.uint8)}
    graph = graph_of("ConvInteger", inputs, ["w", "z"], 4, pads=[1] * 4)
    product = next(
        stage.body
        for node in graph.expressions
        for stage in node.stages
        if stage.reducer == "sum" and len(stage.reduce_axes) == 3
    )
    casts = [part for part in walk(product) if isinstance(part, Cast)]
    assert [part.dtype for part in casts] == ["int32", "int32"]
    assert getattr(product, "op", None) == "mul"
