"""Models of one operator of `ai.onnx.ml`, held against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import helper

from tests.support.graph_values import graph_outputs
from tests.support.model_kernels import compiled
from tests.support.model_libraries import exported
from tuner.models.graph import Graph, check_graph
from tuner.models.reading import read_graph
from tuner.models.workloads import workloads_of

X = np.round(np.random.default_rng(3).standard_normal((7, 5)) * 2).astype(np.float32) / 2
LABELS = {"Label": np.int64, "Scores": np.float32}


def forest(
    kind: str, targets: int, *, modes: Sequence[str] = ("LEQ",), low: float = -1.0, missing: int = 0
) -> dict[str, Any]:
    """Attributes of five random trees, of which the last one is a leaf."""
    rng = np.random.default_rng(targets)
    lists: dict[str, list[Any]] = {}

    def note(**values: Any) -> None:
        for name, value in values.items():
            lists.setdefault(name, []).append(value)

    def grow(tree: int, number: int, depth: int) -> int:
        """Adds the node and what is below it; the next free number."""
        is_leaf = depth == 0 or (depth < 3 and rng.random() < 0.3)
        mode = "LEAF" if is_leaf else f"BRANCH_{rng.choice(modes)}"
        note(nodes_treeids=tree, nodes_nodeids=number, nodes_modes=mode)
        note(nodes_featureids=0 if is_leaf else int(rng.integers(X.shape[1])))
        note(nodes_values=float(np.round(rng.standard_normal() * 2) / 2))
        note(nodes_missing_value_tracks_true=int(rng.integers(2)) * missing)
        place = len(lists["nodes_modes"]) - 1
        note(nodes_truenodeids=0, nodes_falsenodeids=0)
        if not is_leaf:
            lists["nodes_truenodeids"][place] = number + 1
            lists["nodes_falsenodeids"][place] = following = grow(tree, number + 1, depth - 1)
            return grow(tree, following, depth - 1)
        for target in range(targets):
            weight = float(rng.uniform(low, 1.0))
            note(**{f"{kind}_treeids": tree, f"{kind}_nodeids": number})
            note(**{f"{kind}_ids": target, f"{kind}_weights": weight})
        return number + 1

    for tree, depth in enumerate((4, 3, 4, 2, 0)):
        grow(tree, 0, depth)
    return lists


def machine(classes: int, **more: Any) -> dict[str, Any]:
    """Attributes of a support vector classifier of random vectors."""
    rng, pairs = np.random.default_rng(classes), classes * (classes - 1) // 2
    counts = [2 + number % 2 for number in range(classes)]
    return {
        "kernel_type": "RBF",
        "kernel_params": [0.3, 0.0, 0.0],
        "vectors_per_class": counts,
        "support_vectors": rng.standard_normal(sum(counts) * X.shape[1]).tolist(),
        "coefficients": rng.standard_normal((classes - 1) * sum(counts)).tolist(),
        "rho": rng.standard_normal(pairs).tolist(),
        "classlabels_ints": [7, 0, 4, 9][:classes],
        **more,
    }


def model_of(
    op: str, attributes: Mapping[str, Any], x: Any, outputs: Mapping[str, Any], version: int = 3
) -> Any:
    """One operator of x; outputs are described by their types alone."""
    kind = helper.np_dtype_to_tensor_dtype
    node = helper.make_node(op, ["X"], list(outputs), domain="ai.onnx.ml", **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("X", kind(x.dtype), x.shape)],
        [helper.make_tensor_value_info(n, kind(np.dtype(t)), None) for n, t in outputs.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def read(model: Any) -> Graph:
    graph = read_graph(model.SerializeToString(), {})
    check_graph(graph)
    return graph


def assert_as_the_runtime(model: Any, x: Any) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    for got, right in zip(
        graph_outputs(read(model), [x]), session.run(None, {"X": x}), strict=True
    ):
        assert got.dtype == right.dtype
        assert got.shape == right.shape
        np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-6)


def assert_the_library_is_right(graph: Graph, x: Any, folder: Path) -> None:
    kernels = {part.workload.key: compiled(part.workload, None) for part in workloads_of(graph)}
    library = exported(graph, kernels, folder, "classes")
    for got, right in zip(library.run_classes(x), graph_outputs(graph, [x]), strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-5)
