"""Models on a GPU, on the double of NVIDIA's driver: right answers with default schedules
and random ones, whatever the order of what need not wait; what a GPU's graph cannot do
is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from tests.device.machine import needs_compiler
from tests.support import onnx_networks as nets
from tests.support.cuda_model_kernels import cuda_kernels_of
from tuner.lowering.cuda.nvcc import cuda_compiler
from tuner.measure.gpu.runner import GpuLane
from tuner.models.errors import ModelRefused
from tuner.models.executors.cuda_checking import run_cuda_library
from tuner.models.executors.cuda_executor import CudaExecutor
from tuner.models.graph import Graph
from tuner.models.library.cuda_library import cuda_model_kernel
from tuner.models.library.library import ModelNumbers
from tuner.models.nodes import Branch, Scan, Side, State
from tuner.models.reading import read_graph
from tuner.runtime.cuda_model import unpacked_model
from tuner.runtime.cuda_model_link import link_cuda_model
from tuner.target.detect import parse_target
from tuner.workload.bounded import BoundedExtents
from tuner.workload.expression import Tensor

MODELS = {
    "perceptron": nets.perceptron(),
    "resnet": nets.resnet(size=8, width=4),
    "bert": nets.bert(),
    "tagger": nets.tagger(),  # a scan: written out, with slices that are not aligned
}
SM_90 = parse_target("cuda:sm_90")


@needs_compiler
@pytest.mark.usefixtures("gpu_double")
@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("perceptron", 1),
        pytest.param("resnet", None, marks=pytest.mark.slow),
        pytest.param("bert", None, marks=pytest.mark.slow),
        pytest.param("tagger", None, marks=pytest.mark.slow),
    ],
)
def test_a_models_library_computes_what_onnx_says(
    name: str, seed: int | None, tmp_path: Path
) -> None:
    model = MODELS[name]
    graph = read_graph(nets.serialized(model), {})
    kernels = cuda_kernels_of(graph, SM_90, cuda_compiler(tmp_path / "cubins"), seed)
    built = cuda_model_kernel(graph, kernels, SM_90, 1, "net_run", ModelNumbers())
    path = tmp_path / "libnet.so"
    path.write_bytes(link_cuda_model("net", unpacked_model(built.object_code)))
    given: dict[str, Any] = nets.feeds(model)
    (expected,) = ReferenceEvaluator(model).run(None, given)
    checked, steps = run_cuda_library(path, "net_run", list(given.values()), GpuLane())
    (got,) = checked.outputs
    assert np.abs(got - expected).max() <= 1e-4 * np.abs(expected).max()
    assert checked.median_s > 0 and len(steps) >= len(graph.expressions) and min(steps) > 0


BRANCH = Branch(
    name="choice",
    condition="flag",
    then=Side(nodes=(), results=("x",)),
    other=Side(nodes=(), results=("x",)),
    results=(Tensor(name="y", shape=(4,), dtype="float32"),),
)
SCAN = Scan(
    name="loop",
    count=20_000,
    body=(),
    windows={},
    shapes={},
    sequences=(),
    states=(State(tensor=Tensor(name="y", shape=(4,), dtype="float32"), initial="x", after="y"),),
)
X = Tensor(name="x", shape=(4,), dtype="float32")
PLAIN = Graph(inputs=(X,), constants={}, nodes=(), outputs=("x",), labels=("given", "result"))
DOUBLED = read_graph(nets.serialized(nets.perceptron()), {}).nodes[0]


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (replace(PLAIN, nodes=(BRANCH,)), "choice chooses what is computed at run time"),
        (replace(PLAIN, nodes=(replace(SCAN, condition="y"),)), "loop ends by a condition"),
        (replace(PLAIN, nodes=(replace(SCAN, body=(DOUBLED,)),)), "20000 calls of kernels"),
        (replace(PLAIN, fixed={"x": np.zeros(4, np.float32)}), "input given is fixed"),
        (
            replace(PLAIN, bounded={"result": BoundedExtents(axes=(0,), extents="n")}),
            "output result has an extent that depends on values",
        ),
    ],
)
def test_what_a_gpus_graph_cannot_do_is_refused_by_name(graph: Graph, said: str) -> None:
    with pytest.raises(ModelRefused, match=said):
        CudaExecutor(GpuLane()).refuse(graph)


def test_what_needs_no_run_time_decisions_is_taken() -> None:
    for model in MODELS.values():
        CudaExecutor(GpuLane()).refuse(read_graph(nets.serialized(model), {}))
