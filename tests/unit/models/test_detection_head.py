"""A detection head, whose number of boxes depends on values: its graph and its library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime

from tests.support.model_kernels import compiled
from tests.support.model_libraries import exported
from tests.unit.models.bounded_models import Array, agree, model_of, node, read
from tuner.export.manifest import read_manifest
from tuner.models.workloads import workloads_of
from tuner.workload.bounded import BoundedExtents


def detector(boxes: int, classes: int) -> bytes:
    """Boxes by their centres, an objectness and scores of classes; as exports of YOLO end."""
    pred = np.zeros((1, boxes, 5 + classes), np.float32)
    return model_of(
        {"pred": pred},
        [
            node("Slice", "pred s0 s4 s2", "box"),
            node("Slice", "pred s4 s5 s2", "object"),
            node("Slice", "pred s5 big s2", "class"),
            node("Mul", "object class", "confidence"),
            node("Transpose", "confidence", "scores", perm=[0, 2, 1]),
            node("NonMaxSuppression", "box scores s5 iou least", "sel", center_point_box=1),
            node("Gather", "sel s2", "third", axis=1),
            node("Squeeze", "third s1", "chosen"),
            node("Gather", "pred zero", "image", axis=0),
            node("Gather", "image chosen", "rows", axis=0),
            node("Slice", "rows s0 s4 s1", "boxes"),
            node("GatherND", "scores sel", "score"),
            node("Gather", "sel unit", "label", axis=1),
            node("Shape", "score", "number"),
        ],
        {"boxes": 2, "score": 1, "label": 1, "number": 1},
        {
            **{f"s{number}": [number] for number in (0, 1, 2, 4, 5)},
            "big": [2**31],
            "iou": np.array([0.45], np.float32),
            "least": np.array([0.25], np.float32),
            "zero": np.int64(0),
            "unit": np.int64(1),
        },
    )


def detections(boxes: int, classes: int) -> list[Array]:
    """Inputs of which some boxes, none, all, and one a class are chosen."""
    some, none, each, same = (
        np.random.default_rng(n).random((1, boxes, 5 + classes)).astype(np.float32)
        for n in range(4)
    )
    some[..., :2] *= 8
    none[..., 4] = 0
    each[..., 0] += 9 * np.arange(boxes)
    each[..., 4:] = each[..., 4:] * 0.25 + 0.75
    same[..., :4] = 1
    return [some, none, each, same]


def test_a_detection_head_is_right_for_any_number_of_boxes() -> None:
    graph = agree(detector(20, 2), *({"pred": pred} for pred in detections(20, 2)))
    assert graph.bounded["boxes"] == BoundedExtents(axes=(0,), extents="boxes.extent")
    assert graph.tensor(graph.outputs[0]).shape == (10, 4)
    assert not graph.refusals


def test_its_library_gives_the_boxes_that_there_are(tmp_path: Path) -> None:
    """By default schedules: the Python loader cuts, `out` and C get all, the example runs."""
    content = detector(12, 2)
    graph, out = read(content), tmp_path / "out"
    kernels = {part.workload.key: compiled(part.workload, None) for part in workloads_of(graph)}
    module = exported(graph, kernels, out, "detector")
    session = onnxruntime.InferenceSession(content)
    for pred in detections(12, 2):
        right = session.run(None, {"pred": pred})
        got = module.run_detector(pred)
        assert len(got) == 4
        for array, other in zip(got, right, strict=True):
            np.testing.assert_allclose(array, other, 1e-6, strict=True)
    (function,) = json.loads((out / "manifest.json").read_text())["functions"]
    bounded = {a["name"]: a["bounded"] for a in function["arguments"] if "bounded" in a}
    assert bounded["boxes"] == {"axes": [0], "extents": "boxes_extent"}
    whole = [
        module.aligned_empty(argument.shape, argument.dtype)
        for argument in module.run_detector.signature.outputs
    ]
    module.run_detector(detections(12, 2)[3], out=whole)
    assert whole[0].shape == (10, 4) and not whole[0][2:].any() and whole[4].tolist() == [2]
    assert (
        "only as many elements as out_boxes_extent says" in (out / "include/detector.h").read_text()
    )
    assert read_manifest(out).functions == (function,)
    subprocess.run([sys.executable, "example.py"], cwd=out / "examples", check=True)
