"""Accuracy of trained networks before and after `tuner quantize`, on data sets that
scikit-learn ships."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.models.exact_runtime import exact_session
from tests.support.float_networks import Array, trained_classifier
from tuner.models.quantize.command import quantize_file
from tuner.models.quantize.ranges import METHODS, Method
from tuner.models.quantize.result import Options
from tuner.models.reading import read_graph
from tuner.models.reference.evaluation import evaluate_graph

LOST = 0.005  # of the rows, at most


def parts(name: str) -> tuple[Array, Array, Array, Array]:
    """Rows and labels to train with, and a third of all to test with."""
    datasets = pytest.importorskip("sklearn.datasets")
    data = getattr(datasets, f"load_{name}")()
    x = ((data.data - data.data.mean(0)) / (data.data.std(0) + 1e-6)).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[: 2 * len(x) // 3], order[2 * len(x) // 3 :]
    return x[train], data.target[train], x[test], data.target[test]


def by_runtime(content: bytes, x: Array) -> Array:
    return np.asarray(exact_session(content).run(None, {"x": x})[0])


def by_graph(content: bytes, x: Array) -> Array:
    graph = read_graph(content, {"n": len(x)})
    return evaluate_graph(graph, [x])[graph.outputs[0]]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["digits", "breast_cancer", "wine"])
def test_a_trained_network_loses_half_a_point_at_most(
    tmp_path: Path, name: str, method: Method
) -> None:
    x, labels, unseen, right = parts(name)
    content = trained_classifier(x, labels, 64, 200, np.random.default_rng(1))
    (tmp_path / "net.onnx").write_bytes(content)
    np.savez(tmp_path / "data.npz", x=x[:256])
    result = quantize_file(tmp_path / "net.onnx", tmp_path / "data.npz", {}, Options(method=method))
    before = np.mean(by_runtime(content, unseen).argmax(1) == right)
    assert before > 0.9, "the network was trained"
    for run in (by_runtime, by_graph):
        after = np.mean(run(result.content, unseen).argmax(1) == right)
        print(name, method, run.__name__, f"{before:.2%} → {after:.2%}")
        assert after >= before - LOST
