"""Attention beside PyTorch and OpenVINO, from 128 to 8,192 positions.

Run as `python -m benchmarks.attention -o FILE`. Each workload is tuned for its number of
threads. Then, on as many cores, the kernel and the other libraries are called in turn on
the same tensors, and the medians of their times compared. Errors are against float64.
With `--decode` there is one query before as many keys and values; `--dtype bfloat16` stores
all tensors so.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from itertools import product
from math import exp, log
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import openvino
import openvino.opset13 as operators
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

import tuner
from benchmarks.measurement import Measurement, Table, Value, current_commit, this_machine, to_text
from benchmarks.models.race import openvino_call
from tuner.models.arrays import aligned_copy
from tuner.runtime.loader import aligned_empty
from tuner.target.detect import detect_cpu
from tuner.workload.arrays import numpy_dtype
from tuner.workload.reference import error_bound, evaluate_with_magnitude, max_rel_error
from tuner.workload.spec import parse_spec

HEADS = 12
POSITIONS = (128, 256, 512, 1024, 2048, 4096, 8192)
WIDTHS = (64, 128)
CHECKED = 2048  # positions up to which the reference in float64 is computed
LEAST_S = 0.02  # of a rival's calls in a round
RIVALS = ("PyTorch", "inductor", "FlexAttention", "OpenVINO")
COLUMNS = {
    "positions": "",
    "head size": "",
    "mask": "",
    "threads": "",
    "error / bound": "",
    "kernel": "ms",
    **dict.fromkeys(RIVALS, "ms"),
    "fastest / kernel": "ratio",
    "streams": "",
}
Call = Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-o", dest="out", type=Path, required=True, help="the file to write")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--positions", default=",".join(map(str, POSITIONS)))
    parser.add_argument("--decode", action="store_true", help="one query before a cache")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    shapes = product(
        map(int, options.threads.split(",")),
        map(int, options.positions.split(",")),
        WIDTHS,
        (False,) if options.decode else (False, True),
    )
    rows = []
    for threads, positions, width, causal in shapes:
        rows.append(row(positions, width, causal=causal, threads=threads, options=options))
        print(*rows[-1], sep="  ", flush=True)
        options.out.write_text(to_text(measurement(rows, options)))


def measurement(rows: list[list[Value]], options: argparse.Namespace) -> Measurement:
    """The rows so far, which are many minutes' work."""
    target = detect_cpu()
    ratios = [float(str(cells[-2])) for cells in rows]
    mean = exp(sum(map(log, ratios)) / len(ratios))
    return Measurement(
        suite="attention",
        date=date.today().isoformat(),
        machine=this_machine(str(target.tvm["mcpu"]), target.name),
        commit=current_commit(),
        command="python -m benchmarks.attention"
        + (" --decode" if options.decode else "")
        + f" --dtype {options.dtype} -o FILE",
        conditions=[
            f"Batch 1, {HEADS} heads, {options.dtype}"
            + (", one query before so many keys and values." if options.decode else "."),
            f"{options.trials} trials or {options.seconds:g} s; medians of {options.rounds} "
            "rounds of calls in turn.",
            f"Errors against float64 up to {CHECKED} positions.",
            f"PyTorch {torch.__version__}: scaled_dot_product_attention, the same compiled by "
            "inductor, and FlexAttention compiled. "
            f"OpenVINO {openvino.__version__} computes in {options.dtype} from float32 tensors.",
            f"Geometric mean of fastest / kernel: {mean:.2f}.",
        ],
        tables=[Table(title="", columns=COLUMNS, rows=rows)],
    )


def row(
    positions: int, width: int, *, causal: bool, threads: int, options: argparse.Namespace
) -> list[Value]:
    queries, dtype = 1 if options.decode else positions, str(options.dtype)
    spec = (
        f"attention:B=1,H={HEADS},S={queries},SK={positions},D={width},"
        f"causal={str(causal).lower()},dtype={dtype}"
    )
    workload = parse_spec(spec)
    rng = np.random.default_rng(1)
    shape = (1, HEADS, queries, width)
    given = [
        aligned_copy(rng.standard_normal((1, HEADS, count, width)).astype(numpy_dtype(dtype)))
        for count in (queries, positions, positions)
    ]
    given = [bits.view(numpy_dtype(dtype)) for bits in given]
    usable = os.sched_getaffinity(0)
    with TemporaryDirectory() as folder:
        kernel = tuner.tune(
            spec,
            trials=options.trials,
            seconds=options.seconds,
            threads=threads,
            db=f"sqlite:///{folder}/attention.db",
        )
        assert isinstance(kernel, tuner.Kernel)
        os.sched_setaffinity(0, set(sorted(usable)[:threads]))
        written = aligned_empty(shape, dtype)  # what is not aligned would be copied in each call
        out = written.view(numpy_dtype(dtype))
        calls: dict[str, Call] = {"kernel": lambda: kernel(*given, out=written)}
        calls |= rivals(given, causal, threads, Path(folder))
        times = raced(calls, options.rounds)
        os.sched_setaffinity(0, usable)
    share: float | None = None
    if queries * positions <= CHECKED**2:
        named = dict(zip("QKV", given, strict=True))
        want, magnitude = evaluate_with_magnitude(workload.expression, named)
        error = max_rel_error(workload.expression, {"O": out}, want, magnitude)
        share = round(error / error_bound(workload.expression), 4)
    own = times.pop("kernel")
    streams = any(f":{name}" in str(kernel.config) for name in ("stream", "split"))
    return [
        positions,
        width,
        "causal" if causal else "none",
        threads,
        share,
        round(own * 1e3, 3),
        *(round(times[name] * 1e3, 3) if name in times else None for name in RIVALS),
        round(min(times.values()) / own, 2),
        "yes" if streams else "no",
    ]


def raced(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """The median time of each call, in seconds; in each round all are called in turn."""
    repeats = {}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        repeats[name] = max(1, int(LEAST_S / (time.perf_counter() - start)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            times[name].append((time.perf_counter() - start) / repeats[name])
    return {name: median(values) for name, values in times.items()}


def rivals(given: list[Any], causal: bool, threads: int, folder: Path) -> dict[str, Call]:
    """What the libraries call on the same tensors."""
    torch.set_num_threads(threads)
    tensors = [as_tensor(array) for array in given]
    narrow = given[0].dtype != np.float32
    wide = [array.astype(np.float32) for array in given]
    model, precision = openvino_model(wide, causal, folder), "bf16" if narrow else "f32"
    calls: dict[str, Call] = {
        "PyTorch": lambda: scaled_dot_product_attention(*tensors, is_causal=causal),
        "OpenVINO": openvino_call(model, wide, threads, precision),
    }
    calls |= dict(compiled(tensors, causal))
    return calls


def as_tensor(array: Any) -> Any:
    """The tensor of PyTorch with the same elements; NumPy's bfloat16 is not its own."""
    if array.dtype == np.float32:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)


def compiled(tensors: list[Any], causal: bool) -> Iterator[tuple[str, Call]]:
    """What inductor compiles; PyTorch has FlexAttention for some CPUs only."""
    queries, keys = tensors[0].shape[2], tensors[1].shape[2]
    mask = (
        create_block_mask(lambda b, h, i, j: i >= j, None, None, queries, keys, "cpu")
        if causal
        else None
    )
    programs = {
        "inductor": lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=causal),
        "FlexAttention": lambda q, k, v: flex_attention(q, k, v, block_mask=mask),
    }
    for name, program in programs.items():
        call = torch.compile(program, dynamic=False)
        try:
            call(*tensors)
        except Exception as error:  # of PyTorch's compiler, of many kinds
            print(f"{name}: {str(error).splitlines()[0]}", flush=True)
            continue
        yield name, partial(call, *tensors)


def openvino_model(given: list[Any], causal: bool, folder: Path) -> Path:
    inputs = [operators.parameter(array.shape, np.float32) for array in given]
    result = operators.scaled_dot_product_attention(*inputs, causal=causal)
    path = folder / "attention.xml"
    openvino.save_model(openvino.Model([result], inputs), path, compress_to_fp16=False)
    return path


if __name__ == "__main__":
    main()
