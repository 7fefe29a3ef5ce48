"""Products with weights of few bits, beside memory and other libraries: one row, as in
decode, and many, as in prefill.

Run as `python -m benchmarks.decode -o FILE`. Each layer is tuned with constant weights.
Then the kernel, ONNX Runtime's MatMulNBits, OpenVINO on the same file and PyTorch's
weight-only products are called in turn, on the same weights. Of one thread times are those
that it has run, so that other work on the machine counts little; the read bandwidth of its
core is measured by the product itself before and after.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from itertools import product
from math import exp, log
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
import openvino
import torch
from onnx import TensorProto, helper, numpy_helper

import tuner
from benchmarks.measurement import Measurement, Table, Value, current_commit, this_machine, to_text
from benchmarks.models.race import openvino_call
from tuner.target.detect import detect_cpu
from tuner.target.limits import measure_limits

LAYERS = ("4096x4096", "11008x4096", "32000x4096")  # of Llama 2 7B: units, features
# Weights, features of a group, and what activations are rounded to.
STORED = (
    ("int4", 32, "float32"),
    ("int4", 32, "int8"),
    ("int4", 128, "float32"),
    ("int4", 128, "int8"),
    ("int8", 128, "float32"),
    ("int8", 128, "int8"),
)
ACCURACY_LEVELS = {"float32": 1, "int8": 4}  # of ONNX Runtime's operator
RIVALS = ("ONNX Runtime", "OpenVINO", "PyTorch bfloat16")
COLUMNS = {
    "layer": "",
    "rows": "",
    "threads": "",
    "weights": "",
    "activations": "",
    "kernel": "µs",
    "bandwidth": "%",
    **dict.fromkeys(RIVALS, "µs"),
    "fastest / kernel": "ratio",
}
# Of the greatest number, between kernels that round activations alike but for ties.
TOLERANCE = {"float32": 1e-4, "int8": 5e-3}
Call = Callable[[], Any]


class Layer(NamedTuple):
    units: int
    features: int
    weight: str
    group: int
    activations: str

    def spec(self, rows: int) -> str:
        shape = f"M={rows},N={self.units},K={self.features}"
        return (
            f"qdense:{shape},weight={self.weight},group={self.group},"
            f"activations={self.activations},const=W+S"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("-o", dest="out", type=Path, required=True, help="the file to write")
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--rows", default="1,128")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--layers", default=",".join(LAYERS))
    options = parser.parse_args()
    shapes = product(
        map(int, options.rows.split(",")),
        map(int, options.threads.split(",")),
        options.layers.split(","),
        STORED,
    )
    lines: list[list[Value]] = []
    for rows, threads, layer, stored in shapes:
        units, features = map(int, layer.split("x"))
        lines.append(line(Layer(units, features, *stored), rows, threads, options))
        print(*lines[-1], sep="  ", flush=True)
        options.out.write_text(to_text(measurement(lines, options)))


def measurement(lines: list[list[Value]], options: argparse.Namespace) -> Measurement:
    """What has been measured so far."""
    target = detect_cpu()
    ratios = [float(str(cells[-1])) for cells in lines]
    mean = exp(sum(map(log, ratios)) / len(ratios))
    return Measurement(
        suite="decode",
        date=date.today().isoformat(),
        machine=this_machine(str(target.tvm["mcpu"]), target.name),
        commit=current_commit(),
        command="python -m benchmarks.decode -o FILE",
        conditions=[
            f"{options.trials} trials or {options.seconds:g} s; medians of {options.rounds} calls "
            "in turn, of one thread in the time that it ran.",
            "Bandwidth: bytes of weights, scales and activations in the kernel's time, as a share "
            "of what one core reads from a working set of that size, the best of two measurements.",
            f"ONNX Runtime {onnxruntime.__version__}: MatMulNBits, at the accuracy level that "
            "rounds activations as the kernel does. "
            f"OpenVINO {openvino.__version__} likewise, on the same file. "
            f"PyTorch {torch.__version__}: _weight_int4pack_mm_for_cpu, in bfloat16, the fastest "
            "type that it has.",
            f"Geometric mean of fastest / kernel: {mean:.2f}.",
        ],
        tables=[Table(title="", columns=COLUMNS, rows=lines)],
    )


def line(layer: Layer, rows: int, threads: int, options: argparse.Namespace) -> list[Value]:
    """A row of the table."""
    rng = np.random.default_rng(1)
    packed = 2 if layer.weight == "int4" else 1
    x = rng.standard_normal((rows, layer.features)).astype(np.float32)
    stored = rng.integers(0, 256, (layer.units, layer.features // packed)).astype(np.uint8)
    shape = (layer.units, layer.features // layer.group)
    scales = rng.uniform(0.01, 0.02, shape).astype(np.float32)
    nbytes = stored.nbytes + scales.nbytes + x.nbytes + 4 * rows * layer.units
    usable = os.sched_getaffinity(0)
    cores = sorted(usable)[:threads]
    with TemporaryDirectory() as folder:
        kernel = tuner.tune(
            layer.spec(rows),
            trials=options.trials,
            seconds=options.seconds,
            threads=threads,
            db=f"sqlite:///{folder}/decode.db",
        )
        assert isinstance(kernel, tuner.Kernel)
        os.sched_setaffinity(0, set(cores))
        before = bandwidth(cores[0], nbytes)
        # ONNX Runtime's bytes have no sign.
        own = stored if layer.weight == "int4" else (stored ^ 128).view(np.int8)
        out = np.empty((rows, layer.units), np.float32)
        calls: dict[str, Call] = {"kernel": lambda: kernel(x, own, scales, out=out)}
        calls |= rivals(layer, x, stored, scales, threads, Path(folder))
        check(calls, TOLERANCE[layer.activations])
        times = raced(calls, options.rounds, time.thread_time if threads == 1 else time.monotonic)
        best = max(before, bandwidth(cores[0], nbytes))
        os.sched_setaffinity(0, usable)
    own_s = times["kernel"]
    fastest = min(times[name] for name in RIVALS if name in times)
    return [
        f"{layer.units}×{layer.features}",
        rows,
        threads,
        f"{layer.weight}, groups of {layer.group}",
        layer.activations,
        round(own_s * 1e6, 1),
        round(100 * nbytes / own_s / best),
        *(round(times[name] * 1e6, 1) if name in times else None for name in RIVALS),
        round(fastest / own_s, 2),
    ]


def rivals(
    layer: Layer, x: Any, stored: Any, scales: Any, threads: int, folder: Path
) -> dict[str, Call]:
    """By what they compute the same with; PyTorch has a product with int4 only."""
    content = model(layer, x, stored, scales)
    path = folder / "product.onnx"
    path.write_bytes(content)
    rounding = layer.group if layer.activations == "int8" else 0
    options = {"DYNAMIC_QUANTIZATION_GROUP_SIZE": str(rounding)}
    request: Any = openvino_call(path, [x], threads, properties=options)
    calls: dict[str, Call] = {
        "ONNX Runtime": onnx_runtime(content, x, threads),
        "OpenVINO": lambda: request()[0],
    }
    if layer.weight == "int4":
        calls["PyTorch bfloat16"] = pytorch(x, stored, scales, layer.group, threads)
    return calls


def check(calls: dict[str, Call], tolerance: float) -> None:
    """That all in the same precision compute the same, near enough."""
    right = np.array(calls["ONNX Runtime"]())
    for name in ("kernel", "OpenVINO"):
        np.testing.assert_allclose(
            calls[name](), right, rtol=0, atol=tolerance * np.abs(right).max(), err_msg=name
        )


def raced(calls: dict[str, Call], rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """Medians of calls in turn, in seconds."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = clock()
            call()
            times[name].append(clock() - start)
    return {name: median(values) for name, values in times.items()}


def bandwidth(core: int, nbytes: int) -> float:
    """Bytes a second that the core reads of a working set of this size."""
    limits = measure_limits(core, 1.0)
    return min(limits.bandwidth, key=lambda entry: abs(entry.working_set_bytes - nbytes)).read


def model(layer: Layer, x: Any, stored: Any, scales: Any) -> bytes:
    """An ONNX file of the product."""
    blocks = stored.reshape(layer.units, layer.features // layer.group, -1)
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft",
        K=layer.features, N=layer.units, bits=8 * stored.shape[1] // layer.features,
        block_size=layer.group, accuracy_level=ACCURACY_LEVELS[layer.activations],
    )  # fmt: skip
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [len(x), layer.units])],
        [
            numpy_helper.from_array(blocks, "w"),
            numpy_helper.from_array(scales.reshape(-1), "s"),
        ],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    content: bytes = made.SerializeToString()
    return content


def onnx_runtime(content: bytes, x: Any, threads: int) -> Call:
    chosen = onnxruntime.SessionOptions()
    chosen.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(content, chosen, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": x})[0]


def pytorch(x: Any, stored: Any, scales: Any, group: int, threads: int) -> Call:
    torch.set_num_threads(threads)
    halves = np.stack([stored & 15, stored >> 4], -1).reshape(len(stored), -1)
    numbers = torch.from_numpy(halves.astype(np.int32))
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(numbers, 1)
    pairs = torch.stack([torch.from_numpy(scales.T), torch.zeros(scales.T.shape)], -1)
    activations, factors = torch.from_numpy(x).bfloat16(), pairs.bfloat16().contiguous()
    return partial(torch.ops.aten._weight_int4pack_mm_for_cpu, activations, packed, group, factors)


if __name__ == "__main__":
    main()
