"""Check and race the candidates of this folder on a machine with a GPU.

This is the second half of the benchmark. It needs Python 3.10, PyTorch with CUDA and
this folder, and nothing of the tuner. Candidates run on PyTorch's own stream and memory.
All contenders are timed in the same way: as CUDA graphs of many calls, between events,
in turn. The result is a table in result.md, written anew after each race.

    python run.py [--seconds 480] [RACE]

Races come in the order of their importance. Each first meets the library, then what
`torch.compile` makes, which takes long: a race that is cut off keeps what it has.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import datetime
import itertools
import json
import logging
import os
import signal
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from operator import mul
from pathlib import Path
from typing import Any

ROUNDS, FINALISTS = 7, 3
SCREEN_S, RACE_S = 0.01, 0.05  # of device time in one sample
MAX_CALLS = 400  # in one graph
SECONDS = 480.0  # of all races together
MOST_S, LEAST_S = 90.0, 15.0  # of one race: what it may take, and without which none is begun
MAGIC = b"tuner-cuda-1\n"
MAX_DYNAMIC_SHARED_SIZE_BYTES = 8  # of CUfunction_attribute
TENSOR_MAP_BYTES = 128  # of a CUtensorMap, and its alignment
# CUtensorMapDataType, by PyTorch's names.
TENSOR_MAP_TYPES = {
    "torch.int8": 0, "torch.uint8": 0, "torch.int32": 3, "torch.float16": 6, "torch.float32": 7,
    "torch.bfloat16": 9,
}  # fmt: skip
TF32_MAP_TYPE = 11


class Refused(Exception):
    """Why nothing can be timed here, in one line."""


def load_torch() -> Any:
    quiet()
    try:
        import torch  # noqa: PLC0415  (its absence is a refusal in one line, not a traceback)
    except ImportError as error:
        raise Refused(
            "PyTorch is not installed; install a CUDA build of it, and run this again"
        ) from error
    if not torch.cuda.is_available():
        raise Refused(
            "PyTorch finds no GPU (torch.cuda.is_available() is false); carry this folder to a "
            "machine with one"
        )
    return torch


# --- candidates
# ------------------------------------------------------------------------------


def read_module(data: bytes) -> tuple[dict[str, Any], list[tuple[str, bytes]]]:
    """Head and cubins of a packed module."""
    if not data.startswith(MAGIC):
        raise Refused("a candidate's file is damaged; build the folder again")
    start = len(MAGIC) + 4
    (length,) = struct.unpack("<I", data[len(MAGIC) : start])
    head = json.loads(data[start : start + length])
    offset, cubins = start + length, []
    for arch, size in head["cubins"]:
        cubins.append((arch, data[offset : offset + size]))
        offset += size
    return head, cubins


class Kernel:
    """A candidate: its device functions launched one after another on PyTorch's current stream."""

    def __init__(self, torch: Any, driver: Any, data: bytes) -> None:
        self._torch, self._driver = torch, driver
        self.head, ((_, code),) = read_module(data)
        module = ctypes.c_void_p()
        checked(driver, driver.cuModuleLoadData(ctypes.byref(module), code))
        self._launches = []
        for launch in self.head["launches"]:
            function = ctypes.c_void_p()
            checked(
                driver,
                driver.cuModuleGetFunction(
                    ctypes.byref(function), module, launch["kernel"].encode()
                ),
            )
            if launch["shared_bytes"] > 0:
                checked(
                    driver,
                    driver.cuFuncSetAttribute(
                        function, MAX_DYNAMIC_SHARED_SIZE_BYTES, launch["shared_bytes"]
                    ),
                )
            self._launches.append((function, launch))
        self._workspace = {
            tensor["name"]: torch.empty(
                tensor["shape"], dtype=getattr(torch, tensor["dtype"]), device="cuda"
            )
            for tensor in self.head["workspace"]
        }

    def bind(self, inputs: list[Any], outputs: list[Any]) -> Callable[[], None]:
        """A call on these tensors."""
        named = dict(self._workspace)
        named |= {
            entry["name"]: tensor for entry, tensor in zip(self.head["inputs"], inputs, strict=True)
        }
        named |= {
            entry["name"]: tensor
            for entry, tensor in zip(self.head["outputs"], outputs, strict=True)
        }
        ready = []
        for function, launch in self._launches:
            addresses = [ctypes.c_void_p(named[name].data_ptr()) for name in launch["arguments"]]
            maps = [
                tensor_map(self._driver, named[each["buffer"]], each)
                for each in launch.get("maps", ())
            ]
            pointers = (ctypes.c_void_p * (len(maps) + len(addresses)))(
                *(aligned(room) for room in maps),
                *(ctypes.addressof(entry) for entry in addresses),
            )
            ready.append(
                (
                    function,
                    (*launch["grid"], *launch["block"], launch["shared_bytes"]),
                    pointers,
                    (addresses, maps),
                )
            )

        def call() -> None:
            stream = ctypes.c_void_p(self._torch.cuda.current_stream().cuda_stream)
            for function, sizes, pointers, _ in ready:
                checked(
                    self._driver,
                    self._driver.cuLaunchKernel(
                        function, *map(ctypes.c_uint, sizes), stream, pointers, None
                    ),
                )

        return call


def aligned(room: Any) -> int:
    """Where a tensor map lies in the room for it."""
    return -(-ctypes.addressof(room) // TENSOR_MAP_BYTES) * TENSOR_MAP_BYTES


def tensor_map(driver: Any, tensor: Any, described: Mapping[str, Any]) -> Any:
    """What the copy engine knows of a tensor: twice the bytes of a map, for its alignment.

    128-byte swizzle, as `tuner/runtime/src/tuner_cuda.c` has it.
    """
    shape = described["shape"][::-1]
    steps = described.get("steps", [1] * len(shape))[::-1]
    box = [side * step for side, step in zip(described["box"][::-1], steps, strict=True)]
    strides = [tensor.element_size() * step for step in itertools.accumulate(shape[:-1], mul)]
    rank, room = len(shape), (ctypes.c_ubyte * (2 * TENSOR_MAP_BYTES))()
    checked(
        driver,
        driver.cuTensorMapEncodeTiled(
            ctypes.c_void_p(aligned(room)),
            TF32_MAP_TYPE if described.get("rounded") else TENSOR_MAP_TYPES[str(tensor.dtype)],
            ctypes.c_uint(rank),
            ctypes.c_void_p(tensor.data_ptr()),
            (ctypes.c_uint64 * rank)(*shape),
            (ctypes.c_uint64 * rank)(*strides),
            (ctypes.c_uint32 * rank)(*box),
            (ctypes.c_uint32 * rank)(*steps),
            *(0, 3, 2, 0),
        ),
    )
    return room


def checked(driver: Any, status: int) -> None:
    if status != 0:
        name = ctypes.c_char_p()
        driver.cuGetErrorName(status, ctypes.byref(name))
        raise RuntimeError(f"the driver says {(name.value or b'unknown').decode()}")


# --- workloads
# ------------------------------------------------------------------------------


class Case:
    """Inputs of a race, the float64 result, and PyTorch's ways to compute it.

    `magnitude` is what errors are relative to.
    """

    def __init__(
        self,
        inputs: list[Any],
        want: Any,
        magnitude: Any,
        rivals: dict[str, Callable[[], Any]],
        dtype: Any = None,
    ) -> None:
        """`dtype`: of the output; None: that of the first input."""
        self.inputs, self.want, self.magnitude, self.rivals = inputs, want, magnitude, rivals
        self.dtype = inputs[0].dtype if dtype is None else dtype


def matmul(torch: Any, race: dict[str, Any], dtype: Any) -> Case:
    m, n, k = (race["sizes"][name] for name in "MNK")
    a, b = (
        torch.randn(m, k, device="cuda", dtype=dtype),
        torch.randn(k, n, device="cuda", dtype=dtype),
    )
    out = torch.empty(m, n, device="cuda", dtype=dtype)
    want, magnitude = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    return Case([a, b], want, magnitude, {"torch (cuBLAS)": lambda: torch.mm(a, b, out=out)})


def bytes_product(torch: Any, race: dict[str, Any]) -> Case:
    """A dense layer of integers of 8 bits, whose sums are exact."""
    m, n, k = (race["sizes"][name] for name in "MNK")
    x, w = (torch.randint(-128, 128, (rows, k), device="cuda", dtype=torch.int8) for rows in (m, n))
    want = x.double() @ w.double().t()
    rivals = {"torch (cuBLAS)": lambda: torch._int_mm(x, w.t())}
    return Case([x, w], want, torch.ones_like(want), rivals, torch.int32)


def byte_floats_product(torch: Any, race: dict[str, Any]) -> Case:
    """A dense layer of floats of 8 bits (E4M3), scaled and rounded to bfloat16.

    Kernels take their bytes. The library adds up its short sums in float32, as they do.
    """
    m, n, k = (race["sizes"][name] for name in "MNK")
    x, w = (torch.randn(rows, k, device="cuda").to(torch.float8_e4m3fn) for rows in (m, n))
    scale, unit = (torch.full((1,), value, device="cuda") for value in (0.5, 1.0))
    left, right = x.float().double() * 0.5, w.float().double().t()

    def scaled() -> Any:
        return torch._scaled_mm(x, w.t(), scale, unit, out_dtype=torch.bfloat16)

    return Case(
        [x.view(torch.uint8), w.view(torch.uint8), scale],
        left @ right,
        left.abs() @ right.abs(),
        {"torch (cuBLASLt)": scaled},
        torch.bfloat16,
    )


def tf32_product(torch: Any, race: dict[str, Any]) -> Case:
    """A dense layer of float32, which the library may multiply as tf32 too."""
    m, n, k = (race["sizes"][name] for name in "MNK")
    x, w = (torch.randn(rows, k, device="cuda") for rows in (m, n))
    out = torch.empty(m, n, device="cuda")
    want, magnitude = x.double() @ w.double().t(), x.double().abs() @ w.double().abs().t()
    torch.backends.cuda.matmul.allow_tf32 = True
    return Case([x, w], want, magnitude, {"torch (cuBLAS)": lambda: torch.mm(x, w.t(), out=out)})


def convolution(torch: Any, race: dict[str, Any], dtype: Any) -> Case:
    size = race["sizes"]
    x = torch.randn(size["N"], size["H"], size["W"], size["CI"], device="cuda", dtype=dtype)
    w = torch.randn(3, 3, size["CI"], size["CO"], device="cuda", dtype=dtype)  # HWIO
    image = x.permute(0, 3, 1, 2)  # channels last in memory, as it is
    weights = w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    stride = size.get("stride", 1)

    def conv(left: Any, right: Any) -> Any:
        return torch.nn.functional.conv2d(left, right, padding=1, stride=stride)

    def exact(left: Any, right: Any) -> Any:
        return conv(left.double(), right.double()).permute(0, 2, 3, 1).contiguous()

    torch.backends.cudnn.benchmark = True
    want, magnitude = exact(image, weights), exact(image.abs(), weights.abs())
    return Case([x, w], want, magnitude, {"torch (cuDNN)": lambda: conv(image, weights)})


def rowwise(torch: Any, race: dict[str, Any], what: str) -> Case:
    m, n = race["sizes"]["M"], race["sizes"]["N"]
    f = torch.nn.functional
    x = torch.randn(m, n, device="cuda")
    if what == "softmax":
        want = torch.softmax(x.double(), 1)
        magnitude = want * (1 + x.double().abs() + x.double().abs().amax(1, keepdim=True))
        return Case([x], want, magnitude, {"torch": lambda: torch.softmax(x, 1)})
    if what == "layer_norm":
        gamma, beta = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
        want = f.layer_norm(x.double(), (n,), gamma.double(), beta.double())
        spread = x.double().abs() + x.double().abs().mean(1, keepdim=True)
        scale = (x.double().var(1, unbiased=False, keepdim=True) + 1e-5).rsqrt()
        magnitude = 3 * spread * scale * gamma.double().abs() + beta.double().abs()
        return Case(
            [x, gamma, beta], want, magnitude, {"torch": lambda: f.layer_norm(x, (n,), gamma, beta)}
        )
    bias = torch.randn(n, device="cuda")
    want = f.gelu(x.double() + bias.double())
    magnitude = 2 * (x.double().abs() + bias.double().abs()) + 1e-6
    return Case([x, bias], want, magnitude, {"torch": lambda: f.gelu(x + bias)})


def make(torch: Any, race: dict[str, Any]) -> Case:
    kind, dtype = race["kind"], getattr(torch, race["dtype"])
    if kind == "matmul":
        return matmul(torch, race, dtype)
    if kind == "bytes_product":
        return bytes_product(torch, race)
    if kind == "byte_floats_product":
        return byte_floats_product(torch, race)
    if kind == "tf32_product":
        return tf32_product(torch, race)
    if kind == "convolution":
        return convolution(torch, race, dtype)
    return rowwise(torch, race, kind)


def quiet() -> None:
    """Silence PyTorch's compiler before it is imported.

    It logs all that it tries. Errors of it are reported here in one line.
    """
    os.environ |= {
        "TRITON_PRINT_AUTOTUNING": "0",
        "TORCHINDUCTOR_MAX_AUTOTUNE_REPORT_CHOICES_STATS": "0",
    }
    # PyTorch sets the levels of its loggers itself, and logs each kernel that does not fit.
    logging.disable(logging.CRITICAL)


def compiled(torch: Any, rivals: dict[str, Callable[[], Any]]) -> dict[str, Callable[[], Any]]:
    """The same calls by torch.compile with Triton, where that works here.

    They are compiled for exactly these shapes.
    """
    fast_calls = {}
    for name, call in rivals.items():
        try:
            # what it saw of other shapes would make this one's dynamic, and several
            # times slower
            torch._dynamo.reset()
            fast = torch.compile(call, mode="max-autotune-no-cudagraphs", dynamic=False)
            with (
                open(os.devnull, "w") as nowhere,
                contextlib.redirect_stdout(nowhere),
                contextlib.redirect_stderr(nowhere),
            ):
                fast()
            fast_calls["torch.compile max-autotune"] = fast
        except (
            RuntimeError,
            OSError,
            ImportError,
            ValueError,
            AttributeError,
        ) as error:  # of another project's compiler
            print(
                f"  torch.compile does not take part ({name}): {str(error).splitlines()[0][:120]}",
                file=sys.stderr,
            )
    return fast_calls


# --- timing
# ------------------------------------------------------------------------------


class Timer:
    """Calls captured into a graph. A sample is the seconds of one call."""

    def __init__(self, torch: Any, call: Callable[[], Any], budget_s: float) -> None:
        self._torch = torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(stream)
        self.calls = 1
        single = self._graph(call, 1)
        once_s = min(self._time(single) for _ in range(3))
        self.calls = max(1, min(MAX_CALLS, round(budget_s / max(once_s, 1e-7))))
        self._captured = self._graph(call, self.calls)
        self.sample()

    def _graph(self, call: Callable[[], Any], count: int) -> Any:
        graph = self._torch.cuda.CUDAGraph()
        with self._torch.cuda.graph(graph):
            for _ in range(count):
                call()
        return graph

    def _time(self, graph: Any) -> float:
        start, stop = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) / 1e3

    def sample(self) -> float:
        return self._time(self._captured) / self.calls


def error_of(torch: Any, case: Case, out: Any) -> float:
    """The largest error over all elements, infinite where one is not a number."""
    off = (out.double() - case.want).abs() / case.magnitude
    return float("inf") if bool(torch.isnan(off).any()) else float(off.max())


def screened(
    torch: Any, driver: Any, folder: Path, race: dict[str, Any], arch: str, case: Case
) -> tuple[list[Any], list[str]]:
    """Check all candidates and time the correct ones.

    Gives (seconds, candidate, call, output, error) of each, the fastest first, and the
    faults of the others.
    """
    unwritten = float("nan") if case.dtype.is_floating_point else -1
    passed, faults = [], []
    for candidate in race["built"][arch]:
        out = torch.full(case.want.shape, unwritten, device="cuda", dtype=case.dtype)
        try:
            call = Kernel(torch, driver, (folder / candidate["file"]).read_bytes()).bind(
                case.inputs, [out]
            )
            call()
            torch.cuda.synchronize()
        except RuntimeError as failure:
            faults.append(f"{candidate['file']}: {str(failure).splitlines()[0]}")
            continue
        error = error_of(torch, case, out)
        if error > race["bound"]:
            faults.append(f"{candidate['file']}: error {error:.3g}, {race['bound']:.3g} is allowed")
            continue
        timer = Timer(torch, call, SCREEN_S)
        seconds = statistics.median(timer.sample() for _ in range(3))
        passed.append((seconds, candidate, call, out, error))
    return sorted(passed, key=lambda entry: entry[0]), faults


def raced(torch: Any, contenders: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Median seconds of each, in turn over all rounds."""
    timers = {name: Timer(torch, call, RACE_S) for name, call in contenders.items()}
    samples: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(ROUNDS):
        for name, timer in timers.items():
            samples[name].append(timer.sample())
    return {name: statistics.median(seconds) for name, seconds in samples.items()}


def copy_bandwidth(torch: Any, nbytes: int) -> float:
    """Bytes a second that a copy of this size moves, read and written counted."""
    source = torch.empty(nbytes // 8, device="cuda", dtype=torch.float32).uniform_()
    target = torch.empty_like(source)
    timer = Timer(torch, lambda: target.copy_(source), RACE_S)
    moved = 2.0 * 4.0 * int(source.numel())
    return moved / statistics.median(timer.sample() for _ in range(ROUNDS))


def run(
    torch: Any, driver: Any, folder: Path, race: dict[str, Any], arch: str
) -> Iterator[dict[str, Any]]:
    """The race's row against the library, and once more with what torch.compile makes."""
    case = make(torch, race)
    passed, faults = screened(torch, driver, folder, race, arch, case)
    for fault in faults:
        print(f"  wrong: {fault}", file=sys.stderr)
    row: dict[str, Any] = {
        "name": race["name"],
        "spec": race["spec"],
        "candidates": len(race["built"][arch]),
        "wrong": len(faults),
        "screened": [
            {"seconds": entry[0], "registers": entry[1]["registers"], "config": entry[1]["config"]}
            for entry in passed
        ],
    }
    if "not_tuned" in race:
        row["not_tuned"] = race["not_tuned"]
    if not passed:
        yield {**row, "verdict": "no right candidate"}
        return
    yield row | against(torch, race, arch, case, passed, case.rivals)
    fast = compiled(torch, case.rivals)
    if fast:
        yield row | against(torch, race, arch, case, passed, {**case.rivals, **fast})


def against(
    torch: Any,
    race: dict[str, Any],
    arch: str,
    case: Case,
    passed: list[Any],
    rivals: dict[str, Callable[[], Any]],
) -> dict[str, Any]:
    """What a race of the best candidates against these rivals adds to its row."""
    places = [
        place for place, entry in enumerate(passed) if place < FINALISTS or "tuned" in entry[1]
    ]
    finalists = {f"kernel {place}": passed[place][2] for place in places}
    times = raced(torch, {**finalists, **rivals})
    best = min(finalists, key=lambda name: times[name])
    chosen = passed[int(best.split()[1])]
    error = error_of(torch, case, chosen[3])
    if error > race["bound"]:
        return {"verdict": f"the fastest is wrong after timing: error {error:.3g}"}
    fastest = min(rivals, key=lambda name: times[name])
    ratio, bar = times[fastest] / times[best], race["bars"].get(arch)
    row: dict[str, Any] = {
        "kernel_s": times[best], "rivals_s": {name: times[name] for name in rivals},
        "ratio": ratio, "bar": bar, "error": error,
        "config": chosen[1]["config"], "tflops": race["flops"] / times[best] / 1e12,
    }  # fmt: skip
    for place in places:
        if "tuned" in passed[place][1]:
            row["tuned"] = {
                **passed[place][1]["tuned"],
                "kernel_s": times[f"kernel {place}"],
                "config": passed[place][1]["config"],
            }
    met = bar is None or ratio >= bar
    if race["copy_fraction"]:
        bandwidth = copy_bandwidth(torch, race["bytes"])
        row["of_copy"] = race["bytes"] / times[best] / bandwidth
        met = met and row["of_copy"] >= race["copy_fraction"]
    return {**row, "verdict": "met" if met else "missed"}


# --- report
# ------------------------------------------------------------------------------


def clocks() -> str:
    """What nvidia-smi says now: graphics and memory clocks, power limit, driver."""
    query = "clocks.sm,clocks.max.sm,clocks.mem,power.limit,driver_version"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    try:
        said = (
            subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
            .stdout.strip()
            .splitlines()
        )
    except OSError:
        return "clocks unknown: no nvidia-smi"
    return f"SM now, SM most, memory, power limit, driver: {said[0] if said else 'unknown'}"


def table(document: dict[str, Any]) -> str:
    lines = [
        f"# {document['gpu']} ({document['arch']}), {document['date']}",
        "",
        f"{document['clocks']}; PyTorch {document['torch']}, CUDA {document['cuda']}; kernels "
        f"by {document['compiler']}",
        "",
        "| race | kernel | fastest library | library / kernel | bar | of copy rate | TFLOP/s | "
        "error | tried (wrong) | verdict |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in document["races"]:
        counted = f"{row['candidates']} ({row['wrong']})"
        if "ratio" not in row:
            lines.append(
                f"| {row['spec']} | – | – | – | – | – | – | – | {counted} | {row['verdict']} |"
            )
            continue
        name = min(row["rivals_s"], key=row["rivals_s"].get)
        copied = f"{row['of_copy']:.0%}" if "of_copy" in row else "–"
        library = f"{name}, {row['rivals_s'][name] * 1e6:.1f} µs"
        lines.append(
            f"| {row['spec']} | {row['kernel_s'] * 1e6:.1f} µs | {library} | {row['ratio']:.2f} "
            f"| {row['bar']} | {copied} "
            f"| {row['tflops']:.1f} | {row['error']:.1e} | {counted} | {row['verdict']} |"
        )
    lines += ["", "| race | contender | time |", "|---|---|---|"]
    for row in document["races"]:
        times = {"kernel": row["kernel_s"], **row["rivals_s"]} if "ratio" in row else {}
        if "tuned" in row:
            tuned = row["tuned"]
            busy = "" if tuned.get("busy") is None else f", GPU busy {tuned['busy']:.0%}"
            name = f"tuned, {tuned['trials']} trials in {tuned['seconds']:.0f} s{busy}"
            times[name] = tuned["kernel_s"]
        lines += [
            f"| {row['spec']} | {name} | {times[name] * 1e6:.1f} µs |"
            for name in sorted(times, key=times.__getitem__)
        ]
    lines += [
        f"\n{row['spec']} was not tuned: {row['not_tuned']}"
        for row in document["races"]
        if "not_tuned" in row
    ]
    return "\n".join(lines) + "\n"


def header(torch: Any, suite: dict[str, Any], arch: str) -> dict[str, Any]:
    return {
        "gpu": torch.cuda.get_device_name(), "arch": arch,
        "date": datetime.date.today().isoformat(), "clocks": clocks(),
        "torch": torch.__version__, "cuda": torch.version.cuda,
        "compiler": suite["compiler"].splitlines()[-1], "races": [],
    }  # fmt: skip


def alone(folder: Path, suite: dict[str, Any], name: str) -> None:
    """Run one race in this process and write its row into its folder."""
    race = next(race for race in suite["races"] if race["name"] == name)
    torch = load_torch()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.manual_seed(0)
    torch.zeros(1, device="cuda")  # makes the context that candidates are loaded into
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    for row in run(torch, ctypes.CDLL("libcuda.so.1"), folder, race, arch):
        written = folder / name / "row.json.new"
        written.write_text(json.dumps(row))
        written.replace(folder / name / "row.json")


def row_of(folder: Path, race: dict[str, Any], arch: str, limit_s: float) -> dict[str, Any]:
    """Run a race in a process of its own, because an error of the device ends the process.

    Gives its row, or the reason of its failure.
    """
    plain = {
        "name": race["name"],
        "spec": race["spec"],
        "candidates": len(race["built"][arch]),
        "wrong": 0,
    }
    if limit_s < LEAST_S:
        return {**plain, "verdict": f"not run: {max(limit_s, 0.0):.0f} s were left"}
    file = folder / race["name"] / "row.json"
    file.parent.mkdir(exist_ok=True)
    file.unlink(missing_ok=True)
    limit_s = min(limit_s, MOST_S)
    said = folder / race["name"] / "said.txt"
    with said.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, str(folder / Path(__file__).name), race["name"]],
            stdout=stream,
            stderr=stream,
            start_new_session=True,  # with the compilers that it starts
        )
        try:
            ended = f"failed with status {process.wait(limit_s)}"
        except subprocess.TimeoutExpired:
            ended = f"cut off after {limit_s:.0f} s"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    words = said.read_text(errors="replace")
    sys.stderr.write(words)
    if not file.is_file():
        last = (words.strip().splitlines() or ["nothing"])[-1]
        return {**plain, "verdict": f"{ended}: {last[:200]}"}
    row: dict[str, Any] = json.loads(file.read_text())
    if process.returncode != 0:
        row["verdict"] += f", without torch.compile: {ended}"
    return row


def main(folder: Path, race: str | None, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    suite = json.loads((folder / "suite.json").read_text())
    if race is not None:
        alone(folder, suite, race)
        return
    torch = load_torch()
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    built = sorted({name for race in suite["races"] for name in race["built"]})
    if arch not in built:
        raise Refused(
            f"this GPU is {arch}, and the folder has candidates for {', '.join(built)}; build "
            f"it with --arch {arch}"
        )
    document = header(torch, suite, arch)
    for each in suite["races"]:
        print(each["spec"], file=sys.stderr, flush=True)
        document["races"].append(row_of(folder, each, arch, deadline - time.monotonic()))
        (folder / "result.json").write_text(json.dumps(document, indent=1))
        (folder / "result.md").write_text(table(document))
    print(table(document))


if __name__ == "__main__":
    try:
        parser = argparse.ArgumentParser(description="Race the candidates of this folder.")
        parser.add_argument("race", nargs="?", help="this one alone, in this process")
        parser.add_argument("--seconds", type=float, default=SECONDS, help="of all races together")
        given = parser.parse_args()
        main(Path(__file__).resolve().parent, given.race, given.seconds)
    except Refused as reason:
        sys.exit(f"error: {reason}")
