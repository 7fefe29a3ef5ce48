"""Fused kernels beside our own unfused ones: MLP blocks, depthwise with pointwise, blurs.

Run as `python -m benchmarks.fusion -o FILE`. Of each kind of combination the configs with
the least estimated time are compiled and timed. Then the fastest of each kind are called in
turn on the same arrays, and the medians of their times compared. Errors are against float64.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import tvm

from benchmarks.measurement import Measurement, Table, Value, current_commit, this_machine, to_text
from tuner.cost_model.features import ESTIMATE, featurizer
from tuner.lowering.compiler import compile_program
from tuner.spaces.by_target import cpu_space
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.cpu.facts import LoopNestFacts
from tuner.target.detect import detect_cpu
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import error_bound, evaluate_with_magnitude, max_rel_error
from tuner.workload.spec import workload_from_notation
from tuner.workload.workload import Workload

MLP = """kernel mlp(X: f32[M, K], U: f32[K, J], b: f32[J], D: f32[J, N]) -> (O: f32[M, N]) {
  T[i, j] += X[i, k] * U[k, j]
  H[i, j] = 0.5 * (T[i, j] + b[j]) * (1 + erf((T[i, j] + b[j]) * 0.70710678))
  O[i, n] += H[i, j] * D[j, n]
}"""
GATED = """kernel gated(X: f32[M, K], G: f32[K, J], U: f32[K, J], D: f32[J, N]) -> (O: f32[M, N]) {
  S[i, j] += X[i, k] * G[k, j]
  T[i, j] += X[i, k] * U[k, j]
  H[i, j] = S[i, j] / (1 + exp(-S[i, j])) * T[i, j]
  O[i, n] += H[i, j] * D[j, n]
}"""
SEPARABLE = """kernel separable(X: f32[H, W, C], F: f32[3, 3, C], P: f32[C, D]) ->
    (O: f32[H, W, D]) {
  T[h, w, c] += (X[h + r - 1, w + s - 1, c] else 0) * F[r, s, c] for h in 0:H, w in 0:W
  O[h, w, d] += max(T[h, w, c], 0) * P[c, d]
}"""
INVERTED = """kernel inverted(X: f32[H, W, C], E: f32[C, D], F: f32[3, 3, D], P: f32[D, C]) ->
    (O: f32[H, W, C]) {
  U[h, w, d] += X[h, w, c] * E[c, d]
  V[h, w, d] = min(max(U[h, w, d], 0), 6)
  T[h, w, d] += (V[h + r - 1, w + s - 1, d] else 0) * F[r, s, d] for h in 0:H, w in 0:W
  O[h, w, b] += min(max(T[h, w, d], 0), 6) * P[d, b]
}"""
BLURS = """kernel blurs(X: f32[H, W], F: f32[3, 3]) -> (O: f32[H - 6, W - 6]) {
  T[h, w] += X[h + r, w + s] * F[r, s]
  A[h, w] += T[h + r, w + s] * F[r, s]
  O[h, w] += A[h + r, w + s] * F[r, s]
}"""
COLUMNS = {
    "program": "",
    "extents": "",
    "threads": "",
    "error / bound": "",
    "unfused": "ms",
    "fused": "ms",
    "unfused / fused": "ratio",
    "estimate picks": "",
}
LEAST_S = 0.02  # of a kernel's calls in a round


@dataclass(frozen=True)
class Case:
    """One program with its extents."""

    name: str
    text: str
    extents: Mapping[str, int]

    @property
    def workload(self) -> Workload:
        return workload_from_notation(self.text, dict(self.extents))


def cases() -> list[Case]:
    """All programs, the largest last."""
    rows = (1, 16, 64, 128, 512)
    images = ((112, 32, 64), (56, 128, 128), (28, 256, 256), (14, 512, 512), (7, 1024, 1024))
    blocks = ((56, 24, 144), (28, 32, 192), (14, 96, 576), (7, 160, 960))
    return [
        *(Case("BERT-base MLP", MLP, {"M": m, "K": 768, "J": 3072, "N": 768}) for m in rows),
        *(Case("Llama-like MLP", GATED, {"M": m, "K": 2048, "J": 5632, "N": 2048}) for m in rows),
        *(
            Case("depthwise, pointwise", SEPARABLE, {"H": h, "W": h, "C": c, "D": d})
            for h, c, d in images
        ),
        *(
            Case("inverted residual", INVERTED, {"H": h, "W": h, "C": c, "D": d})
            for h, c, d in blocks
        ),
        Case("three blurs", BLURS, {"H": 1080, "W": 1920}),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-o", dest="out", type=Path, required=True, help="the file to write")
    parser.add_argument("--configs", type=int, default=24, help="timed of each kind")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--only", default="", help="a part of the programs' names")
    options = parser.parse_args()
    target = detect_cpu()
    usable = os.sched_getaffinity(0)
    rows = []
    for threads in map(int, options.threads.split(",")):
        os.environ["TVM_NUM_THREADS"] = str(threads)
        tvm.get_global_func("runtime.config_threadpool")(1, threads)
        os.sched_setaffinity(0, set(sorted(usable)[:threads]))
        for case in cases():
            if options.only in case.name and has_fused(case, threads):
                rows.append(row(case, threads, options))
                print(*rows[-1], sep="  ", flush=True)
    os.sched_setaffinity(0, usable)
    ratios = [float(str(cells[-2])) for cells in rows]
    mean = exp(sum(map(log, ratios)) / len(ratios))
    measurement = Measurement(
        suite="fusion",
        date=date.today().isoformat(),
        machine=this_machine(str(target.tvm["mcpu"]), target.name),
        commit=current_commit(),
        command="python -m benchmarks.fusion -o FILE",
        conditions=[
            f"Float32. Of each kind {options.configs} configs, those with the least estimated "
            f"time of 4,096; medians of {options.rounds} rounds of calls in turn.",
            f"Geometric mean of unfused / fused: {mean:.2f}.",
        ],
        tables=[Table(title="", columns=COLUMNS, rows=rows)],
    )
    options.out.write_text(to_text(measurement))


def has_fused(case: Case, threads: int) -> bool:
    """Whether the space offers a fused kind; one row of products has no tile to share."""
    return any(
        ":fused" in kind for kind in cpu_space(case.workload, detect_cpu(), threads).sketches
    )


def row(case: Case, threads: int, options: argparse.Namespace) -> list[Value]:
    workload = case.workload
    space = cpu_space(workload, detect_cpu(), threads)
    inputs = make_inputs(workload.expression, seed=1)
    (name,) = workload.expression.outputs
    tensor = workload.expression.tensor(name)
    out = tvm.runtime.empty(tensor.shape, tensor.dtype)
    given = [*map(tvm.runtime.tensor, inputs.values()), out]
    fused = [number for number, kind in enumerate(space.sketches) if ":fused" in kind]
    others = [number for number in range(len(space.sketches)) if number not in fused]
    calls, estimates = {}, {}
    for kind, numbers in (("unfused", others), ("fused", fused)):
        calls[kind], estimates[kind] = fastest(space, numbers, given, options.configs)
    want, magnitude = evaluate_with_magnitude(workload.expression, inputs)
    calls["fused"](*given)
    error = max_rel_error(workload.expression, {name: out.numpy()}, want, magnitude)
    times = raced(calls, given, options.rounds)
    return [
        case.name,
        ",".join(f"{key}={value}" for key, value in case.extents.items()),
        threads,
        round(error / error_bound(workload.expression), 4),
        round(times["unfused"] * 1e3, 3),
        round(times["fused"] * 1e3, 3),
        round(times["unfused"] / times["fused"], 2),
        min(estimates, key=lambda kind: estimates[kind]),
    ]


def fastest(
    space: TargetSpace[LoopNestFacts], numbers: list[int], given: list[Any], configs: int
) -> tuple[Any, float]:
    """The fastest of some combinations' configs with the least estimates, and the least one."""
    rng = np.random.default_rng(1)
    points = space.space.sample(rng, 4096)
    points[:, 0] = rng.choice(numbers, size=len(points))
    for column in range(1, points.shape[1]):
        points[:, column] = rng.integers(space.space.cardinalities[column], size=len(points))
    points = np.unique(space.space.canonical(points), axis=0)
    estimates = featurizer(space)(points)[:, ESTIMATE]
    best: tuple[float, Any] = (np.inf, None)
    for place in np.argsort(estimates)[:configs]:
        program = space.program(space.space.config(points[place]))
        compiled = compile_program(program, space.target, "kernel")
        call = compiled.generated["kernel"]
        call(*given)
        elapsed_s = min(timed(call, given, 1) for _ in range(3))
        if elapsed_s < best[0]:
            best = (elapsed_s, call)
    return best[1], float(estimates.min())


def raced(calls: Mapping[str, Any], given: list[Any], rounds: int) -> dict[str, float]:
    """The median time of each call, in seconds; in each round all are called in turn."""
    repeats = {name: max(1, int(LEAST_S / timed(call, given, 1))) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(timed(call, given, repeats[name]))
    return {name: median(values) for name, values in times.items()}


def timed(call: Any, given: list[Any], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call(*given)
    return (time.perf_counter() - start) / repeats


if __name__ == "__main__":
    main()
