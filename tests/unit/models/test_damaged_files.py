"""Damaged files are refused with one clear error, or read: nothing else comes out."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.damaged_models import damaged, samples
from tuner.errors import TunerError
from tuner.models.reading import read_graph

FILES = samples()


@pytest.mark.parametrize("name", list(FILES))
def test_sound_files_are_read(name: str) -> None:
    assert read_graph(FILES[name], {}).nodes


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, in ONNX's evaluator
@pytest.mark.parametrize("name", list(FILES))
def test_damaged_files_are_refused_or_read(name: str) -> None:
    rng, refused = np.random.default_rng(len(name)), 0
    for _ in range(40):
        try:
            read_graph(damaged(FILES[name], rng), {})
        except TunerError as error:
            refused += 1
            assert 10 < len(str(error)) < 1000
    assert refused > 10


def test_an_axis_may_not_be_added_twice() -> None:
    axes = numpy_helper.from_array(np.array([0, -3]), "axes")
    values = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [2]), ("y", None))
    ]
    node = helper.make_node("Unsqueeze", ["x", "axes"], ["y"])
    graph = helper.make_graph([node], "g", values[:1], values[1:], [axes])
    with pytest.raises(TunerError):
        read_graph(helper.make_model(graph).SerializeToString(), {})


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("shape", [[5, 6, 7], [2, 5, 6, 7, 4]])
def test_a_window_has_the_dimensions_that_it_moves_over(op: str, shape: list[int]) -> None:
    """As ONNX Runtime has it; PyTorch pools an image without a batch too."""
    node = helper.make_node(op, ["x"], ["y"], name="pooled", kernel_shape=[3, 3])
    values = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in (("x", shape), ("y", None))
    ]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    with pytest.raises(TunerError, match=rf"{op} \('pooled'\) has a window of 2 dimensions"):
        read_graph(helper.make_model(graph).SerializeToString(), {})


def test_an_axis_of_a_number_is_refused_as_such() -> None:
    values = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", []), ("y", None))
    ]
    node = helper.make_node("Concat", ["x", "x"], ["y"], name="both", axis=0)
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    reason = r"Concat \('both'\) names an axis of a tensor that has no dimensions"
    with pytest.raises(TunerError, match=reason):
        read_graph(helper.make_model(graph).SerializeToString(), {})


def test_an_image_that_a_window_left_nothing_of_is_refused_as_such() -> None:
    values = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in (("x", [1, 1, 2, 2]), ("y", None))
    ]
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[3, 3]),
        helper.make_node("Resize", ["p", "", "", "sizes"], ["y"], name="up"),
    ]
    sizes = numpy_helper.from_array(np.array([1, 1, 4, 4]), "sizes")
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [sizes])
    reason = r"Resize \('up'\) takes no tensor without elements, as float32\[1, 1, 0, 0\] is"
    with pytest.raises(TunerError, match=reason):
        read_graph(helper.make_model(graph).SerializeToString(), {})


def test_texts_are_refused_with_a_way_out() -> None:
    values = [helper.make_tensor_value_info(n, TensorProto.STRING, [2]) for n in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])], "g", values[:1], values[1:]
    )
    with pytest.raises(TunerError, match=r"'x' is of type string; .* encode them as numbers"):
        read_graph(helper.make_model(graph).SerializeToString(), {})
