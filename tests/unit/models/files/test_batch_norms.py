"""Batch normalisation folded into convolutions: the same values, and only where nobody
else reads what lies between."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from tests.support import onnx_networks as nets
from tuner.models.files.batch_norms import fold_batch_norms
from tuner.models.files.onnx_file import read_model


def test_folding_keeps_the_values() -> None:
    model = read_model(nets.serialized(nets.mobilenet(size=16, width=8, blocks=((8, 1),))), {})
    given = nets.feeds(model)
    (before,) = ReferenceEvaluator(model).run(None, given)
    assert fold_batch_norms(model) == 4
    assert not [node for node in model.graph.node if node.op_type == "BatchNormalization"]
    (after,) = ReferenceEvaluator(model).run(None, given)
    assert np.abs(after - before).max() <= 1e-5 * np.abs(before).max()


def convolved(make: nets.Maker) -> Any:
    return make.conv("x", (3, 4), 3)


def test_a_sum_that_others_read_stays() -> None:
    make = nets.Maker()
    normed = convolved(make)
    before = make.nodes[0].output[0]
    model = make.model({"x": (1, 3, 8, 8)}, make.add("Add", normed, before), (1, 4, 8, 8))
    assert fold_batch_norms(model) == 0


def test_a_normalisation_that_trains_stays() -> None:
    make = nets.Maker()
    normed = convolved(make)
    make.nodes[1].attribute.append(helper.make_attribute("training_mode", 1))
    assert fold_batch_norms(make.model({"x": (1, 3, 8, 8)}, normed, (1, 4, 8, 8))) == 0


def test_weights_that_are_inputs_stay() -> None:
    make = nets.Maker()
    normed = convolved(make)
    del make.constants["w0"]
    model = make.model(
        {"x": (1, 3, 8, 8), "w0": (4, 3, 3, 3)}, normed, (1, 4, 8, 8), TensorProto.FLOAT
    )
    assert fold_batch_norms(model) == 0
