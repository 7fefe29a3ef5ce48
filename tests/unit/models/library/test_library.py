"""From an ONNX file to a library: right answers from Python and C, with default
schedules and with packed constants."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.support import onnx_networks as nets
from tests.support.model_kernels import compiled
from tests.support.model_libraries import exported
from tests.support.targets import host_target
from tuner.models.executors.confined_calls import ConfinedCalls
from tuner.models.executors.cpu_executor import CpuExecutor
from tuner.models.nodes import Scan
from tuner.models.reading import read_graph
from tuner.models.reference.onnx_evaluation import evaluate
from tuner.models.tuning.shares import profile
from tuner.models.workloads import workloads_of

FOUR_BITS = TensorProto.INT4
MODELS = {
    "perceptron": nets.perceptron(),
    "resnet": nets.resnet(size=16, width=8),
    "mobilenet": nets.mobilenet(size=16, width=8, blocks=((8, 1), (16, 2))),
    "bert": nets.bert(),
    "tagger": nets.tagger(),  # slices of 10 numbers, which are not aligned, and of 16
}


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("perceptron", None),
        ("resnet", 1),
        pytest.param("mobilenet", None, marks=pytest.mark.slow),
        pytest.param("bert", 1, marks=pytest.mark.slow),
        ("tagger", 1),
    ],
)
def test_a_models_library_computes_what_onnx_says(
    name: str, seed: int | None, tmp_path: Path
) -> None:
    model = MODELS[name]
    graph = read_graph(nets.serialized(model), {})
    kernels = {part.workload.key: compiled(part.workload, seed) for part in workloads_of(graph)}
    library = f"{name}_{'default' if seed is None else seed}"
    module = exported(graph, kernels, tmp_path / "out", library)
    given = nets.feeds(model)
    (expected,) = ReferenceEvaluator(model).run(None, given)
    for _ in range(2):  # the second call finds the first one's arena
        got = getattr(module, f"run_{library}")(*given.values())
        assert np.abs(got - expected).max() <= 1e-4 * np.abs(expected).max()


def test_constants_are_packed_into_the_library(tmp_path: Path) -> None:
    graph = read_graph(nets.serialized(MODELS["resnet"]), {})
    kernels = {part.workload.key: compiled(part.workload, 1) for part in workloads_of(graph)}
    assert any(kernel.prepack is not None for kernel in kernels.values())
    exported(graph, kernels, tmp_path / "out", "net")
    text = subprocess.run(
        ["ldd", str(tmp_path / "out/lib/libnet.so")], capture_output=True, text=True, check=True
    ).stdout
    needed = {line.split()[0].split("/")[-1].split(".")[0] for line in text.splitlines()}
    assert needed <= {"linux-vdso", "libc", "libm", "libpthread", "ld-linux-x86-64"}


def test_where_a_models_time_goes() -> None:
    """Every kernel once, its calls counted; a kernel that does a thousand times the
    work of another takes longer."""
    graph = read_graph(nets.serialized(nets.perceptron(rows=64, sizes=(512, 512, 8))), {})
    kernels = {part.workload.key: compiled(part.workload, None) for part in workloads_of(graph)}
    x = np.ones((64, 512), np.float32)
    executor = CpuExecutor(ConfinedCalls(sorted(os.sched_getaffinity(0))[:1]))
    shares = profile(graph, kernels, host_target(), 1, [x], executor)
    assert {share.workload.key for share in shares} == set(kernels)
    assert sum(share.calls for share in shares) == len(graph.nodes)
    assert shares[0].workload.expression.flops == max(
        share.workload.expression.flops for share in shares
    )
    assert shares[0].inside_s > 10 * shares[-1].inside_s > 0
    assert shares[0].alone_s == 1.0 and shares[0].peak_fraction is None


def test_steps_of_a_scan_count_as_often_as_they_are_done() -> None:
    graph = read_graph(nets.serialized(MODELS["tagger"]), {})
    kernels = {part.workload.key: compiled(part.workload, None) for part in workloads_of(graph)}
    x = np.ones((6, 2, 5), np.float32)
    executor = CpuExecutor(ConfinedCalls(sorted(os.sched_getaffinity(0))[:1]))
    shares = profile(graph, kernels, host_target(), 1, [x], executor)
    scans = [node for node in graph.nodes if isinstance(node, Scan)]
    repeated = sum(len(scan.body) * scan.count for scan in scans)
    assert len(scans) == 3 and {scan.count for scan in scans} == {6}
    assert sum(share.calls for share in shares) == len(graph.nodes) - 3 + repeated
    assert all(share.inside_s > 0 for share in shares)


def test_an_input_with_one_value_is_compared_in_each_call(tmp_path: Path) -> None:
    """The library and its examples, which give the input its value."""
    given = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 6]),
        helper.make_tensor_value_info("size", TensorProto.INT64, [2]),
    ]
    nodes = [
        helper.make_node("Reshape", ["x", "size"], ["shaped"]),
        helper.make_node("Exp", ["shaped"], ["y"]),
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", "columns"])
    net = helper.make_model(
        helper.make_graph(nodes, "net", given, [result]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    size = np.array([3, 4], np.int64)
    graph = read_graph(nets.serialized(net), {}, {"size": size})
    kernels = {part.workload.key: compiled(part.workload, None) for part in workloads_of(graph)}
    out = tmp_path / "out"
    module = exported(graph, kernels, out, "sized")
    x = np.arange(12, dtype=np.float32).reshape(2, 6) / 12
    np.testing.assert_allclose(module.run_sized(x, size), np.exp(x).reshape(3, 4), rtol=1e-5)
    with pytest.raises(module.LibraryError, match="input size is not the value") as refused:
        module.run_sized(x, np.array([4, 3], np.int64))
    assert (refused.value.status, refused.value.kind) == (9, "value")
    np.testing.assert_allclose(module.run_sized(x, size), np.exp(x).reshape(3, 4), rtol=1e-5)
    (function,) = json.loads((out / "manifest.json").read_text())["functions"]
    assert [argument.get("fixed") for argument in function["arguments"]] == [None, [3, 4], None]
    assert "int64, 2, 16 bytes, must be 3 4" in (out / "include/sized.h").read_text()
    run_examples(out, "sized")


def run_examples(directory: Path, library: str) -> None:
    """Those of an export, in each language."""
    examples = directory / "examples"
    subprocess.run([sys.executable, "example.py"], cwd=examples, check=True)
    for compiler, file in (("cc", "example.c"), ("c++", "example.cpp")):
        command = [compiler, file, "-I../include", f"../lib/lib{library}.a", "-lm", "-lpthread"]
        subprocess.run([*command, "-o", "program"], cwd=examples, check=True)
        subprocess.run(["./program"], cwd=examples, check=True)


@pytest.mark.slow
def test_numbers_have_no_dimensions(tmp_path: Path) -> None:
    """As NumPy has them: arrays of shape (), numbers of NumPy, and what a function gave."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Mul", ["x", "scale"], ["y"]),
         helper.make_node("ReduceSum", ["y"], ["total"], keepdims=0)],
        "numbers",
        [value("x", TensorProto.FLOAT, [2, 3]), value("scale", TensorProto.FLOAT, [])],
        [value("y", TensorProto.FLOAT, [2, 3]), value("total", TensorProto.FLOAT, [])],
    )  # fmt: skip
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    graph = read_graph(model.SerializeToString(), {})
    kernels = {part.workload.key: compiled(part.workload, None) for part in workloads_of(graph)}
    module = exported(graph, kernels, tmp_path / "out", "scaled")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for scale in (np.float32(2), np.array(2, np.float32), np.array([2], np.float32)):
        y, total = module.run_scaled(x, scale)
        np.testing.assert_array_equal(y, 2 * x)
        assert np.shape(total) == () and total == 30 and total.dtype == np.float32
    assert module.run_scaled(x, total)[1] == 450
    with pytest.raises(module.ShapeError, match=r"scale has shape \(2,\), expected \(\)"):
        module.run_scaled(x, np.ones(2, np.float32))
    with pytest.raises(module.DTypeError, match="scale has dtype float64"):
        module.run_scaled(x, np.float64(2))
    documents = json.loads((tmp_path / "out/manifest.json").read_text())["functions"]
    assert [each["shape"] for each in documents[0]["arguments"]] == [[2, 3], [], [2, 3], []]
    run_examples(tmp_path / "out", "scaled")


@pytest.mark.slow
def test_a_model_without_inputs_is_an_operator_of_pytorch(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="of the extra torch, which the product runs without")
    values = numpy_helper.from_array(np.arange(3, dtype=np.float32), "values")
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])
    nodes = [helper.make_node("Identity", ["values"], ["y"])]
    body = helper.make_graph(nodes, "known", [], [result], [values])
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    exported(read_graph(model.SerializeToString(), {}), {}, tmp_path / "out", "known")
    program = (
        "import torch, known\n"
        "assert torch.equal(torch.ops.known.run_known(), torch.arange(3.0))\n"
        "traced = torch.compile(torch.ops.known.run_known, backend='eager', fullgraph=True)\n"
        "assert torch.equal(traced(), torch.arange(3.0))"
    )
    environment = {"PYTHONPATH": str(tmp_path / "out")}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=170)


def test_small_formats_travel_as_bytes(tmp_path: Path) -> None:
    """int4 weights with a scale for each block, and results in int4 and an 8-bit float."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.integers(-8, 8, (32, 16)).astype(ml_dtypes.int4),
        "scales": rng.uniform(0.01, 0.1, (2, 16)).astype(np.float32),
        "step": np.float32(0.3),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scales"], ["real"], axis=0, block_size=16),
        helper.make_node("MatMul", ["x", "real"], ["product"]),
        helper.make_node("QuantizeLinear", ["product", "step"], ["q"], output_dtype=FOUR_BITS),
        helper.make_node("Cast", ["product"], ["f"], to=TensorProto.FLOAT8E4M3FN),
    ]
    net = helper.make_model(
        helper.make_graph(
            nodes,
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 32])],
            [
                helper.make_tensor_value_info("q", FOUR_BITS, [4, 16]),
                helper.make_tensor_value_info("f", TensorProto.FLOAT8E4M3FN, [4, 16]),
            ],
            [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", 23)],
        ir_version=11,
    )
    graph = read_graph(nets.serialized(net), {})
    kernels = {part.workload.key: compiled(part.workload, None) for part in workloads_of(graph)}
    module = exported(graph, kernels, tmp_path / "out", "small_numbers")
    x = np.round(rng.standard_normal((4, 32)) * 8).astype(np.float32) / 8
    for got, right in zip(module.run_small_numbers(x), evaluate(net, [x]), strict=True):
        assert got.dtype == right.dtype
        np.testing.assert_array_equal(got, right)
    (function,) = json.loads((tmp_path / "out/manifest.json").read_text())["functions"]
    assert [(argument["dtype"], argument.get("format")) for argument in function["arguments"]] == [
        ("float32", None), ("int8", "int4"), ("uint8", "float8_e4m3fn"),
    ]  # fmt: skip
    header = (tmp_path / "out/include/small_numbers.h").read_text()
    assert "uint8 (each the byte of a float8_e4m3fn)" in header


def test_a_c_program_calls_a_model(tmp_path: Path) -> None:
    model = MODELS["perceptron"]
    graph = read_graph(nets.serialized(model), {})
    kernels = {part.workload.key: compiled(part.workload, None) for part in workloads_of(graph)}
    exported(graph, kernels, tmp_path / "out", "small")
    given: Any = nets.feeds(model)["x"]
    (expected,) = ReferenceEvaluator(model).run(None, {"x": given})
    (tmp_path / "in.bin").write_bytes(given.tobytes())
    (tmp_path / "main.c").write_text(
        '#include "small.h"\n#include <stdio.h>\n'
        "int main(void) {\n"
        f"  float *x = small_alloc({given.nbytes}), *y = small_alloc({expected.nbytes});\n"
        f'  FILE *file = fopen("in.bin", "rb");\n  if (fread(x, 1, {given.nbytes}, file) != '
        f"{given.nbytes}) return 2;\n"
        "  if (run_small(x, y) != SMALL_OK) return 1;\n"
        f"  fwrite(y, 1, {expected.nbytes}, stdout);\n  return 0;\n}}\n"
    )
    out = tmp_path / "out"
    build = [
        "cc",
        "main.c",
        f"-I{out}/include",
        f"{out}/lib/libsmall.a",
        "-lm",
        "-lpthread",
        "-o",
        "program",
    ]
    subprocess.run(build, cwd=tmp_path, check=True)
    said = subprocess.run(["./program"], cwd=tmp_path, check=True, capture_output=True).stdout
    np.testing.assert_allclose(
        np.frombuffer(said, np.float32).reshape(expected.shape), expected, rtol=1e-4, atol=1e-6
    )
