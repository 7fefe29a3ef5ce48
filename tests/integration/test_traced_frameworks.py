"""Programs of PyTorch and ONNX Runtime, recorded in processes of their own."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tuner.trace.record import Trace, TracedCall
from tuner.trace.recording import recorded
from tuner.trace.workloads import express

pytestmark = pytest.mark.slow


def run(program: str, tmp_path: Path, share: float) -> Trace:
    path = tmp_path / "program.py"
    path.write_text(program)
    return recorded([sys.executable, str(path)], share)


LAYERS = """
import sys, threading, time
import torch
torch.set_num_threads(1)
layer, norm = torch.nn.Linear(256, 128), torch.nn.LayerNorm(128)
x, calls = torch.rand(64, 256), []
def work():
    ends = time.monotonic() + 5
    with torch.no_grad():
        while time.monotonic() < ends:
            norm(torch.nn.functional.gelu(layer(x)))
            calls.append(None)
threads = [threading.Thread(target=work) for _ in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
THREADS or work()
open(sys.argv[0] + ".calls", "w").write(str(len(calls)))
"""


def named(trace: Trace, operator: str) -> TracedCall:
    (call,) = (each for each in trace.calls if each.operator == operator)
    return call


@pytest.mark.parametrize("threads", [0, 2])
def test_operators_of_pytorch_are_counted(
    threads: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    trace = run(LAYERS.replace("THREADS", str(threads)), tmp_path, 1.0)
    assert capfd.readouterr() == ("", "")
    calls = int((tmp_path / "program.py.calls").read_text())
    linear, gelu, norm = (
        named(trace, f"aten::{name}") for name in ("linear", "gelu", "layer_norm")
    )
    assert linear.shapes == "64×256 128×256 128" and gelu.shapes == "64×128"
    for call in (linear, gelu, norm):
        assert call.count == calls and call.total_s < trace.elapsed_s * max(threads, 1)
        assert len(express(call).parts) == 1
    # Parts of an operator are not counted.
    assert not [call for call in trace.calls if call.operator == "aten::addmm"]


TEXTS = """
import os
import torch
x = torch.rand(3, 5)
for approximate in ("none", "tanh", "tanh"):
    torch.nn.functional.gelu(x, approximate=approximate)
torch.cat([x, x])
if os.fork() == 0:
    x.sum(1)
    os._exit(0)
os.wait()
"""


def test_texts_lists_and_forked_processes_are_recorded(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    trace = run(TEXTS, tmp_path, 1.0)
    gelus = {call.arguments[1]["value"]: call for call in trace.calls if "gelu" in call.operator}
    assert {name: call.count for name, call in gelus.items()} == {"none": 1, "tanh": 2}
    plain, bent = (express(gelus[name]).parts[0].workload for name in ("none", "tanh"))
    assert plain.key != bent.key
    assert named(trace, "aten::cat").arguments[0]["list"][1]["dtype"] == "float32"
    assert named(trace, "aten::sum").count == 1 and torch.__version__


MANY = """
import sys, time
import torch
torch.set_num_threads(1)
x, calls, ends = torch.rand(4), 0, time.monotonic() + 4
while time.monotonic() < ends:
    torch.add(x, x)
    calls += 1
open(sys.argv[0] + ".calls", "w").write(str(calls))
"""


@pytest.mark.serial  # beside other tests the rate of calls is not that of the sampled ones
def test_many_short_operators_are_sampled(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    trace = run(MANY, tmp_path, 0.02)
    calls = int((tmp_path / "program.py.calls").read_text())
    count = named(trace, "aten::add").count
    assert count == pytest.approx(calls, rel=0.3) and count != calls


PROFILES = """
import torch
from torch.profiler import profile
x = torch.rand(64, 256)
for _ in range(100):
    torch.relu(x)
with profile() as own:
    torch.relu(x)
assert [event.key for event in own.key_averages() if event.key == "aten::relu"]
"""


def test_a_program_may_profile_itself(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    trace = run(PROFILES, tmp_path, 1.0)
    assert trace.exit_code == 0 and named(trace, "aten::relu").count == 101


SESSION = """
import sys
import numpy as np
import onnxruntime
session = onnxruntime.InferenceSession(sys.argv[0] + ".onnx", providers=["CPUExecutionProvider"])
for _ in range(640):
    session.run(None, {"x": np.ones((16, 64), "float32")})
"""


def test_runs_of_a_session_are_kernels_of_its_model(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    values = np.random.default_rng(0).random((64, 32), "float32")
    weights = onnx.numpy_helper.from_array(values, "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["z"])],
        "network",
        [helper.make_tensor_value_info("x", floats, ["rows", 64])],
        [helper.make_tensor_value_info("z", floats, ["rows", 32])],
        [weights],
    )
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)])
    onnx.save(model, str(tmp_path / "program.py.onnx"))
    trace = run(SESSION, tmp_path, 1.0)
    call = named(trace, "InferenceSession.run")
    assert call.count == pytest.approx(640, rel=0.5) and call.shapes == "16×64"
    (part,) = express(call).parts
    assert [tensor.shape for tensor in part.workload.expression.inputs] == [(16, 64), (64, 32)]
