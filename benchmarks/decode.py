"""Matrix times vector with weights of few bits, beside memory and other libraries.

Run as `python -m benchmarks.decode -o FILE`. Each layer is tuned for one thread with
constant weights. Then, on the first core, the kernel, ONNX Runtime's MatMulNBits and PyTorch's
weight-only products are called in turn, on the same weights. Times are those that the
thread has run, so that other work on the machine counts little; the read bandwidth of
the core is measured by the product itself before and after.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper

import tuner
from benchmarks.measurement import Measurement, Table, Value, current_commit, this_machine, to_text
from tuner.target.detect import detect_cpu
from tuner.target.limits import measure_limits

LAYERS = ((4096, 4096), (11008, 4096), (32000, 4096))  # of Llama 2 7B: units, features
STORED = (("int4", 32), ("int4", 128), ("int8", 128))  # weights, features of a group
COLUMNS = {
    "layer": "",
    "weights": "",
    "kernel": "µs",
    "bandwidth": "%",
    "ONNX Runtime": "µs",
    "ratio": "ratio",
    "PyTorch bfloat16": "µs",
    "ratio to PyTorch": "ratio",
}
Call = Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-o", dest="out", type=Path, required=True, help="the file to write")
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--rounds", type=int, default=31)
    options = parser.parse_args()
    torch.set_num_threads(1)
    target = detect_cpu()
    rows = [
        row(units, features, weight, group, options)
        for units, features in LAYERS
        for weight, group in STORED
    ]
    measurement = Measurement(
        suite="decode",
        date=date.today().isoformat(),
        machine=this_machine(str(target.tvm["mcpu"]), target.name),
        commit=current_commit(),
        command="python -m benchmarks.decode -o FILE",
        conditions=[
            "One row, one thread, float32 activations; other jobs ran on the machine.",
            f"{options.trials} trials; medians of {options.rounds} calls in turn, in the time that "
            "the thread ran.",
            "Bandwidth: bytes of weights, scales and activations in the kernel's time, as a share "
            "of what the core reads from a working set of that size, the best of two measurements.",
            f"ONNX Runtime {onnxruntime.__version__}: MatMulNBits in float32. "
            f"PyTorch {torch.__version__}: _weight_int4pack_mm_for_cpu, in bfloat16, the fastest "
            "type that it has.",
        ],
        tables=[Table(title="", columns=COLUMNS, rows=rows)],
    )
    options.out.write_text(to_text(measurement))


def row(
    units: int, features: int, weight: str, group: int, options: argparse.Namespace
) -> list[Value]:
    rng = np.random.default_rng(1)
    packed = 2 if weight == "int4" else 1
    x = rng.standard_normal((1, features)).astype(np.float32)
    stored = rng.integers(0, 256, (units, features // packed)).astype(np.uint8)
    scales = rng.uniform(0.01, 0.02, (units, features // group)).astype(np.float32)
    core = min(os.sched_getaffinity(0))
    nbytes = stored.nbytes + scales.nbytes + x.nbytes + 4 * units
    spec = f"qdense:M=1,N={units},K={features},weight={weight},group={group},const=W+S"
    with TemporaryDirectory() as folder:
        kernel = tuner.tune(
            spec,
            trials=options.trials,
            seconds=options.seconds,
            threads=1,
            db=f"sqlite:///{folder}/decode.db",
        )
        assert isinstance(kernel, tuner.Kernel)
        usable = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {core})
        before = bandwidth(core, nbytes)
        # ONNX Runtime's bytes have no sign.
        own = stored if weight == "int4" else (stored ^ 128).view(np.int8)
        out = np.empty((1, units), np.float32)
        calls: dict[str, Call] = {
            "kernel": lambda: kernel(x, own, scales, out=out),
            "onnxruntime": onnx_runtime(x, stored, scales, group),
        }
        if weight == "int4":
            calls["torch"] = pytorch(x, stored, scales, group)
        np.testing.assert_allclose(calls["kernel"](), calls["onnxruntime"](), rtol=1e-3, atol=1e-3)
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(options.rounds):
            for name, call in calls.items():
                start = time.thread_time()
                call()
                times[name].append(time.thread_time() - start)
        best = max(before, bandwidth(core, nbytes))
        os.sched_setaffinity(0, usable)
    middle = {name: median(values) for name, values in times.items()}
    own_s, onnx_s, torch_s = middle["kernel"], middle["onnxruntime"], middle.get("torch")
    return [
        f"{units}×{features}",
        f"{weight}, groups of {group}",
        round(own_s * 1e6, 1),
        round(100 * nbytes / own_s / best),
        round(onnx_s * 1e6, 1),
        round(onnx_s / own_s, 2),
        None if torch_s is None else round(torch_s * 1e6, 1),
        None if torch_s is None else round(torch_s / own_s, 2),
    ]


def bandwidth(core: int, nbytes: int) -> float:
    """Bytes a second that the core reads of a working set of this size."""
    limits = measure_limits(core, 1.0)
    return min(limits.bandwidth, key=lambda entry: abs(entry.working_set_bytes - nbytes)).read


def onnx_runtime(x: Any, stored: Any, scales: Any, group: int) -> Call:
    units, features = len(stored), x.shape[1]
    bits = 8 * stored.shape[1] // features
    blocks = stored.reshape(units, features // group, -1)
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft",
        K=features, N=units, bits=bits, block_size=group, accuracy_level=1,
    )  # fmt: skip
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, units])],
        [
            numpy_helper.from_array(blocks, "w"),
            numpy_helper.from_array(scales.reshape(-1), "s"),
        ],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    chosen = onnxruntime.SessionOptions()
    chosen.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), chosen, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, {"x": x})[0]


def pytorch(x: Any, stored: Any, scales: Any, group: int) -> Call:
    halves = np.stack([stored & 15, stored >> 4], -1).reshape(len(stored), -1)
    numbers = torch.from_numpy(halves.astype(np.int32))
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(numbers, 1)
    pairs = torch.stack([torch.from_numpy(scales.T), torch.zeros(scales.T.shape)], -1)
    activations, factors = torch.from_numpy(x).bfloat16(), pairs.bfloat16().contiguous()
    return lambda: torch.ops.aten._weight_int4pack_mm_for_cpu(activations, packed, group, factors)


if __name__ == "__main__":
    main()
