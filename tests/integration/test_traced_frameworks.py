"""Programs of PyTorch and ONNX Runtime, recorded in processes of their own."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
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
    ends = time.monotonic() + 1
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
import json, mmap, os, sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
x = torch.rand(4)
torch.add(x, x)
(lines,) = Path(os.environ["TUNER_TRACE_FOLDER"]).glob(f"{os.getpid()}-*.lines")
described = map(json.loads, lines.read_text().splitlines())
(slot,) = (line["slot"] for line in described if line.get("operator") == "aten::add")
with lines.with_suffix(".slots").open("rb") as file:
    slots = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)).cast("d")
samples, first, calls = [], tuple(slots[2 * slot : 2 * slot + 2]), 0
counted, nanoseconds = first
while not samples or samples[-1]["weight"] < 16:
    begun_ns = time.monotonic_ns()
    torch.add(x, x)
    ended_ns = time.monotonic_ns()
    calls += 1
    weight = slots[2 * slot] - counted
    if weight:
        spent_ns = (slots[2 * slot + 1] - nanoseconds) / weight
        sample = {"weight": weight, "spent_ns": spent_ns}
        samples.append({**sample, "begun_ns": begun_ns, "ended_ns": ended_ns})
        counted, nanoseconds = slots[2 * slot], slots[2 * slot + 1]
document = {"first": first, "calls": calls, "samples": samples}
open(sys.argv[0] + ".samples", "w").write(json.dumps(document))
"""
WINDOW_NS = 20e6  # that calls are counted in; a gap is a whole number of them, by 0.5 to 1.5


def test_many_short_operators_are_sampled(tmp_path: Path) -> None:
    """The program looks at what each of its calls adds to the record.

    With no share of the time each gap is twice as long as the one before and a window, once
    what is free is used up. What is compared does not depend on the machine's speed.
    """
    pytest.importorskip("torch")
    trace = run(MANY, tmp_path, 0.0)
    document = json.loads((tmp_path / "program.py.samples").read_text())
    samples, (count, nanoseconds) = document["samples"], document["first"]
    add, weights = named(trace, "aten::add"), [sample["weight"] for sample in samples]
    assert add.count == count + sum(weights) and len(samples) < document["calls"]
    total_ns = nanoseconds + sum(sample["weight"] * sample["spent_ns"] for sample in samples)
    assert add.total_s == pytest.approx(total_ns / 1e9)
    assert all(0 < each["spent_ns"] <= each["ended_ns"] - each["begun_ns"] for each in samples)
    # A window in which the program did not run is not among them.
    assert weights[0] == 1 and weights == sorted(weights) and {*weights} <= {1, 2, 4, 8, 16, 32, 64}
    for before, after in pairwise(samples):
        gap = after["weight"] - 1 if after["weight"] != before["weight"] else 0
        assert after["ended_ns"] - before["begun_ns"] >= 0.5 * gap * WINDOW_NS


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
for _ in range(6400):
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
    # One run of 16 is counted, by chance; six standard deviations are 0.3 of all.
    assert call.count == pytest.approx(6400, rel=0.3) and call.shapes == "16×64"
    (part,) = express(call).parts
    assert [tensor.shape for tensor in part.workload.expression.inputs] == [(16, 64), (64, 32)]
