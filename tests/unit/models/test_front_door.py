"""Graphs of the kinds that files of real packages hold, each against ONNX's evaluator.

The names say what needed them: vision transformers, detectors, rotary positions, shifted
windows, shape arithmetic, branches, upsampling heads, quantised files, language models.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tuner.models.errors import ModelRefused
from tuner.models.graph import check_graph
from tuner.models.graph_archive import packed, unpacked
from tuner.models.nodes import Scan
from tuner.models.reading import read_graph
from tuner.models.reference.evaluation import evaluate_graph
from tuner.models.reference.onnx_evaluation import evaluate
from tuner.models.workloads import workloads_of

FLOAT, INT64, UINT8, BOOL = (
    TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8, TensorProto.BOOL,
)  # fmt: skip
Feed = dict[str, np.ndarray[Any, np.dtype[Any]]]
n = helper.make_node


def floats(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def model(
    nodes: list[Any],
    feed: Feed,
    outputs: list[str],
    constants: Mapping[str, Any],
    opset: int = 17,
) -> Any:
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in feed.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    made = onnx.shape_inference.infer_shapes(made)
    for value in made.graph.output:
        if not value.type.HasField("tensor_type"):
            value.type.CopyFrom(made.graph.input[0].type)  # of a normalisation, not inferred
    return made


def class_token() -> tuple[Any, Feed]:
    feed = {"x": floats(1, 3, 16, 16)}
    nodes = [
        n("Conv", ["x", "w"], ["p"], strides=[4, 4]),
        n("Reshape", ["p", "to"], ["f"]),
        n("Transpose", ["f"], ["t"], perm=[0, 2, 1]),
        n("Concat", ["cls", "t"], ["c"], axis=1),
        n("Add", ["c", "pos"], ["y"]),
    ]
    constants = {
        "w": floats(6, 3, 4, 4), "to": np.array([1, 6, 16]), "cls": floats(1, 1, 6),
        "pos": floats(1, 17, 6),
    }  # fmt: skip
    return model(nodes, feed, ["y"], constants), feed


def focus_slices() -> tuple[Any, Feed]:
    feed = {"x": floats(1, 3, 12, 12)}
    nodes = [n("Slice", ["x", f"s{k}", "ends", "axes", "steps"], [f"p{k}"]) for k in range(4)]
    nodes += [n("Concat", [f"p{k}" for k in range(4)], ["c"], axis=1)]
    nodes += [n("Conv", ["c", "w"], ["y"], pads=[1, 1, 1, 1])]
    starts = {f"s{k}": np.array([k % 2, k // 2]) for k in range(4)}
    constants = {
        "ends": np.array([12, 12]), "axes": np.array([2, 3]), "steps": np.array([2, 2]),
        "w": floats(4, 12, 3, 3), **starts,
    }  # fmt: skip
    return model(nodes, feed, ["y"], constants), feed


def rotate_half() -> tuple[Any, Feed]:
    feed = {"x": floats(1, 2, 5, 8)}
    nodes = [
        n("Split", ["x"], ["a", "b"], axis=-1),
        n("Neg", ["b"], ["nb"]),
        n("Concat", ["nb", "a"], ["r"], axis=-1),
        n("Mul", ["r", "sin"], ["rs"]),
        n("Mul", ["x", "cos"], ["xc"]),
        n("Add", ["xc", "rs"], ["y"]),
    ]
    constants = {"sin": floats(1, 1, 5, 8), "cos": floats(1, 1, 5, 8) + 1}
    return model(nodes, feed, ["y"], constants, opset=13), feed


def window_partition() -> tuple[Any, Feed]:
    feed = {"x": floats(1, 8, 8, 6)}
    nodes = [
        n("Slice", ["x", "three", "end", "one"], ["tail"]),
        n("Slice", ["x", "zero", "three", "one"], ["head"]),
        n("Concat", ["tail", "head"], ["rolled"], axis=1),
        n("Reshape", ["rolled", "cut"], ["r"]),
        n("Transpose", ["r"], ["t"], perm=[0, 1, 3, 2, 4, 5]),
        n("Reshape", ["t", "windows"], ["w"]),
        n("Softmax", ["w"], ["y"], axis=-1),
    ]
    constants = {
        "three": np.array([3]), "zero": np.array([0]), "one": np.array([1]),
        "end": np.array([1 << 31]), "cut": np.array([1, 2, 4, 2, 4, 6]),
        "windows": np.array([4, 16, 6]),
    }  # fmt: skip
    return model(nodes, feed, ["y"], constants), feed


def computed_shape() -> tuple[Any, Feed]:
    feed = {"x": floats(2, 3, 4)}
    nodes = [
        n("Shape", ["x"], ["s"]),
        n("Gather", ["s", "zero"], ["b"]),
        n("Concat", ["b", "rest"], ["to"], axis=0),
        n("Reshape", ["x", "to"], ["r"]),
        n("Gather", ["s", "two"], ["len"]),
        n("Range", ["nought", "len", "step"], ["places"]),
        n("Cast", ["places"], ["f"], to=FLOAT),
        n("Concat", ["f", "f", "f"], ["row"], axis=0),
        n("Add", ["r", "row"], ["y"]),
    ]
    constants = {
        "zero": np.array([0]), "two": np.int64(2), "rest": np.array([12]), "nought": np.int64(0),
        "step": np.int64(1),
    }  # fmt: skip
    return model(nodes, feed, ["y"], constants), feed


def branches() -> tuple[Any, Feed]:
    feed = {"x": floats(3, 4), "rate": np.array(16000)}
    value = [helper.make_tensor_value_info("v", FLOAT, [3, 4])]
    double = helper.make_graph([n("Mul", ["x", "two"], ["v"])], "then", [], value)
    negate = helper.make_graph([n("Neg", ["x"], ["v"])], "else", [], value)
    nodes = [
        n("Equal", ["rate", "high"], ["is_high"]),
        n("If", ["is_high"], ["a"], then_branch=double, else_branch=negate),
        n("If", ["never"], ["b"], then_branch=double, else_branch=negate),
        n("Add", ["a", "b"], ["y"]),
    ]
    constants = {"two": np.float32(2), "high": np.int64(16000), "never": np.array(False)}
    return model(nodes, feed, ["y"], constants), feed


def upsampling() -> tuple[Any, Feed]:
    feed = {"x": floats(1, 4, 5, 6)}
    nodes = [
        n("ConvTranspose", ["x", "w", "b"], ["t"], strides=[2, 2], pads=[1, 0, 1, 0]),
        n("Resize", ["t", "", "scales"], ["r"], mode="linear"),
        n("Resize", ["r", "", "", "sizes"], ["y"], mode="cubic",
          coordinate_transformation_mode="align_corners"),
    ]  # fmt: skip
    constants = {
        "w": floats(4, 3, 3, 3), "b": floats(3), "scales": np.array([1, 1, 2, 2], np.float32),
        "sizes": np.array([1, 3, 11, 17]),
    }  # fmt: skip
    return model(nodes, feed, ["y"], constants), feed


def pyramid() -> tuple[Any, Feed]:
    """Maps of two sizes put together, as necks of detectors do."""
    feed = {"small": floats(1, 4, 5, 6), "large": floats(1, 3, 10, 12)}
    nodes = [
        n("Resize", ["small", "", "scales"], ["up"], mode="nearest",
          coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        n("Relu", ["up"], ["a"]),
        n("Concat", ["a", "large"], ["y"], axis=1),
    ]  # fmt: skip
    return model(nodes, feed, ["y"], {"scales": np.array([1, 1, 2, 2], np.float32)}), feed


def quantised() -> tuple[Any, Feed]:
    feed = {"x": np.round(floats(1, 4, 6, 6) * 64) / 64}
    nodes = [
        n("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        n("DequantizeLinear", ["q", "xs", "xz"], ["xd"]),
        n("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        n("Conv", ["xd", "wd"], ["c"], pads=[1, 1, 1, 1]),
        n("Relu", ["c"], ["y"]),
    ]
    rng = np.random.default_rng(0)
    constants = {
        "xs": np.float32(1 / 32), "xz": np.uint8(120),
        "w": rng.integers(-127, 127, (8, 4, 3, 3)).astype(np.int8),
        "ws": (rng.random(8) * 0.02 + 0.005).astype(np.float32), "wz": np.zeros(8, np.int8),
    }  # fmt: skip
    return model(nodes, feed, ["y"], constants, opset=21), feed


def integer_products() -> tuple[Any, Feed]:
    rng = np.random.default_rng(0)
    feed = {"a": rng.integers(0, 255, (1, 4, 6, 6)).astype(np.uint8)}
    nodes = [
        n("ConvInteger", ["a", "w", "az", "wz"], ["c"], pads=[1, 1, 1, 1]),
        n("MatMulInteger", ["a", "b", "az"], ["m"]),
        n("Add", ["c", "m"], ["y"]),
    ]
    constants = {
        "w": rng.integers(0, 255, (4, 4, 3, 3)).astype(np.uint8), "az": np.uint8(127),
        "wz": np.uint8(3), "b": rng.integers(-128, 127, (6, 6)).astype(np.int8),
    }  # fmt: skip
    return model(nodes, feed, ["y"], constants), feed


def positions() -> tuple[Any, Feed]:
    feed = {"mask": np.array([[1, 1, 0, 1], [0, 1, 1, 1]])}
    nodes = [
        n("CumSum", ["mask", "axis"], ["c"]),
        n("Sub", ["c", "one"], ["p"]),
        n("Gather", ["table", "p"], ["y"]),
    ]
    constants = {"axis": np.int64(1), "one": np.int64(1), "table": floats(9, 5)}
    return model(nodes, feed, ["y"], constants), feed


def rows_of_nothing() -> tuple[Any, Feed]:
    mask = np.random.default_rng(0).random((3, 5, 5)) > 0.4
    feed = {"x": floats(3, 5, 5), "m": mask & (np.arange(5)[None, :, None] > 0)}
    nodes = [
        n("Where", ["m", "x", "least"], ["w"]),
        n("Softmax", ["w"], ["s"], axis=-1),
        n("IsNaN", ["s"], ["none"]),
        n("Where", ["none", "zero", "s"], ["y"]),
    ]
    return model(nodes, feed, ["y"], {"least": np.float32(-np.inf), "zero": np.float32(0)}), feed


def ordering() -> tuple[Any, Feed]:
    feed = {"x": np.round(floats(4, 12) * 2) / 2}  # with equal elements
    nodes = [
        n("ArgMax", ["x"], ["first"], axis=-1, keepdims=0),
        n("ArgMin", ["x"], ["last"], axis=0, keepdims=0, select_last_index=1),
        n("TopK", ["x", "k"], ["values", "places"], axis=-1),
        n("GatherND", ["x", "at"], ["picked"]),
    ]
    constants = {"k": np.array([5]), "at": np.array([[0, -1], [-4, 3]])}
    outputs = ["first", "last", "values", "places", "picked"]
    return model(nodes, feed, outputs, constants), feed


def writes() -> tuple[Any, Feed]:
    feed = {"x": floats(4, 5), "i": np.array([[0, 3, 3], [2, -1, 0]]), "u": floats(2, 3)}
    nodes = [
        n("ScatterElements", ["x", "i", "u"], ["a"], axis=1),
        n("ScatterElements", ["x", "i", "u"], ["b"], axis=1, reduction="add"),
        n("ScatterND", ["x", "rows", "slices"], ["c"]),
    ]
    constants = {"rows": np.array([[1], [3]]), "slices": floats(2, 5)}
    return model(nodes, feed, ["a", "b", "c"], constants, opset=18), feed


def norms() -> tuple[Any, Feed]:
    feed = {"x": floats(2, 8, 3, 5)}
    nodes = [
        n("GroupNormalization", ["x", "g", "b"], ["group"], num_groups=4),
        n("LpNormalization", ["x"], ["lp"], axis=1),
        n("Sin", ["x"], ["s"]),
        n("Round", ["s"], ["r"]),
        n("MaxPool", ["x"], ["pool"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        n("AveragePool", ["x"], ["mean"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    ]
    outputs = ["group", "lp", "r", "pool", "mean"]
    return model(nodes, feed, outputs, {"g": floats(8), "b": floats(8)}, opset=21), feed


def recurrent_layers() -> tuple[Any, Feed]:
    feed = {"x": floats(5, 2, 3), "h": floats(2, 2, 6), "c": floats(2, 2, 6) * 2}
    nodes = [
        n("LSTM", ["x", "w", "r", "b", "", "h", "c"], ["ys", "yh", "yc"], hidden_size=6,
          direction="bidirectional"),
        n("GRU", ["x", "gw", "gr", "gb"], ["gs", "gh"], hidden_size=4, linear_before_reset=1,
          direction="reverse"),
        n("RNN", ["x", "ew", "er"], ["es", "eh"], hidden_size=4, activations=["Affine"],
          activation_alpha=[0.5], activation_beta=[0.1]),
    ]  # fmt: skip
    constants = {
        "w": floats(2, 24, 3), "r": floats(2, 24, 6) * 0.3, "b": floats(2, 48),
        "gw": floats(1, 12, 3), "gr": floats(1, 12, 4) * 0.3, "gb": floats(1, 24),
        "ew": floats(1, 4, 3), "er": floats(1, 4, 4) * 0.3,
    }  # fmt: skip
    return model(nodes, feed, ["ys", "yh", "yc", "gs", "gh", "es", "eh"], constants), feed


def missing_values() -> tuple[Any, Feed]:
    """A constant that is no number, which the notation has no literal for."""
    feed = {"m": floats(4, 5) > 0, "x": floats(4, 5)}
    nodes = [n("Where", ["m", "nan", "x"], ["w"]), n("Neg", ["w"], ["y"])]
    return model(nodes, feed, ["y"], {"nan": np.float32("nan")}), feed


def empty_past() -> tuple[Any, Feed]:
    """No key before the first: tensors without elements come in, go out, and are reduced."""
    feed = {"past": floats(1, 0, 4), "x": floats(1, 3, 4)}
    nodes = [
        n("Concat", ["past", "x"], ["keys"], axis=1),
        n("Relu", ["keys"], ["y"]),
        n("Slice", ["x", "from", "from"], ["none"]),
        n("ReduceSum", ["past", "from"], ["sums"], keepdims=0),
        n("Add", ["sums", "x"], ["z"]),
        n("MatMul", ["past", "w"], ["products"]),
    ]
    constants = {"from": np.array([1]), "w": floats(4, 5)}
    made = model(nodes, feed, ["y", "none", "z", "products"], constants)
    for value in made.graph.output:  # which need not say its shape
        value.type.tensor_type.ClearField("shape")
    return made, feed


def recurrent_variants() -> tuple[Any, Feed]:
    """Sequences of several lengths, clipping, peepholes, coupled gates, activations with
    parameters, the batch in front."""
    feed = {"x": floats(5, 3, 4), "lengths": np.array([5, 0, 2], np.int32), "c": floats(1, 3, 6)}
    nodes = [
        n("LSTM", ["x", "w", "r", "b", "lengths", "", "", "p"], ["ys", "yh", "yc"], hidden_size=6,
          direction="bidirectional", activations=["HardSigmoid", "Softsign", "ScaledTanh",
          "Sigmoid", "Affine", "Elu"], activation_alpha=[0.3, 1.2, 0.5, 0.6],
          activation_beta=[0.4, 0.8, 0.1]),
        n("LSTM", ["x", "w1", "r1", "", "", "", "c"], ["zs", "zh", "zc"], hidden_size=6, clip=0.4,
          input_forget=1, direction="reverse"),
        n("GRU", ["x", "gw", "gr", "gb", "lengths"], ["gs", "gh"], hidden_size=4, clip=0.5),
        n("Transpose", ["x"], ["xt"], perm=[1, 0, 2]),
        n("RNN", ["xt", "ew", "er"], ["es", "eh"], hidden_size=4, layout=1,
          activations=["ThresholdedRelu"], activation_alpha=[0.1]),
    ]  # fmt: skip
    constants = {
        "w": floats(2, 24, 4), "r": floats(2, 24, 6) * 0.3, "b": floats(2, 48),
        "p": floats(2, 18), "w1": floats(1, 24, 4), "r1": floats(1, 24, 6) * 0.3,
        "gw": floats(1, 12, 4), "gr": floats(1, 12, 4) * 0.3, "gb": floats(1, 24),
        "ew": floats(1, 4, 4), "er": floats(1, 4, 4) * 0.3,
    }  # fmt: skip
    outputs = ["ys", "yh", "yc", "zs", "zh", "zc", "gs", "gh", "es", "eh"]
    return model(nodes, feed, outputs, constants), feed


CASES: dict[str, Callable[[], tuple[Any, Feed]]] = {
    made.__name__: made
    for made in (
        class_token, focus_slices, rotate_half, window_partition, computed_shape, branches,
        upsampling, pyramid, quantised, integer_products, positions, rows_of_nothing, ordering,
        writes, norms, recurrent_layers, recurrent_variants, empty_past,
        missing_values,
    )
}  # fmt: skip


@pytest.mark.parametrize("case", list(CASES))
def test_the_graph_computes_what_the_file_says(case: str) -> None:
    made, feed = CASES[case]()
    graph = unpacked(packed(read_graph(made.SerializeToString(), {})))
    with np.errstate(all="ignore"):
        expected = evaluate(made, list(feed.values()))
        tensors = evaluate_graph(graph, list(feed.values()))
    assert len(workloads_of(graph)) <= len(graph.expressions)  # all can be tuned
    for name, right in zip(graph.outputs, expected, strict=True):
        got = tensors[name]
        assert got.shape == right.shape and got.dtype == right.dtype
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)


def test_a_recurrent_layer_is_one_product_and_a_scan() -> None:
    """All inputs are multiplied at once; two kernels a step, whatever the steps: the product
    of the state, and the state with the cell."""
    scans = []
    for steps in (5, 300):
        feed = {"x": floats(steps, 1, 3)}
        constants = {"w": floats(1, 16, 3), "r": floats(1, 16, 4), "b": floats(1, 32)}
        node = n("LSTM", ["x", "w", "r", "b"], ["ys"], hidden_size=4)
        made = model([node], feed, ["ys"], constants)
        graph = read_graph(made.SerializeToString(), {})
        scans += [inner for inner in graph.nodes if isinstance(inner, Scan)]
    assert [scan.count for scan in scans] == [5, 300]
    assert [len(node.outputs) for node in scans[0].body] == [1, 2]
    assert len(scans[1].body) == 2


def test_an_input_is_given_its_whole_shape() -> None:
    made, feed = rotate_half()
    for dimension in made.graph.input[0].type.tensor_type.shape.dim[:2]:
        dimension.ClearField("dim_value")
    content = made.SerializeToString()
    with pytest.raises(ModelRefused, match=r"--shapes x=1x1x5x8"):
        read_graph(content, {})
    with pytest.raises(ModelRefused, match=r"x=1x2x5x9 does not fit.*\?x\?x5x8"):
        read_graph(content, {"x": (1, 2, 5, 9)})
    assert read_graph(content, {"x": feed["x"].shape}).inputs[0].shape == (1, 2, 5, 8)


def test_windows_outside_their_tensor_are_refused() -> None:
    made, _ = recurrent_layers()
    graph = read_graph(made.SerializeToString(), {})
    scan = next(node for node in graph.nodes if isinstance(node, Scan))
    longer = dataclasses.replace(scan, count=scan.count + 1)
    nodes = tuple(longer if node is scan else node for node in graph.nodes)
    with pytest.raises(ModelRefused, match="no slice of"):
        check_graph(dataclasses.replace(graph, nodes=nodes))


def test_the_first_layer_of_a_transformer_is_two_kernels() -> None:
    """The class token, the transposition and the positions cost no pass of their own."""
    made, _ = class_token()
    assert len(read_graph(made.SerializeToString(), {}).nodes) == 2
