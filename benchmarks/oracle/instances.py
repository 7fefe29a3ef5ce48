"""Instances × threads that `--objective throughput` chooses, beside all of them by hand."""

from __future__ import annotations

import multiprocessing
import os
import time
from contextlib import closing
from statistics import median
from typing import Any

import numpy as np

import tuner
from tuner.app.kernels.kernel import Kernel
from tuner.app.races.idle import measure_idle
from tuner.app.races.race import kept_kernel
from tuner.db import tradeoffs
from tuner.db.engine import open_database
from tuner.db.kernels import Kernel as StoredKernel
from tuner.export.artifacts import ArtifactStore
from tuner.measure.objective import THROUGHPUT, Goal, chosen
from tuner.models.arrays import aligned_copy
from tuner.settings import load_settings
from tuner.workload.spec import parse_spec
from tuner.workload.workload import Workload

SPECS = (
    "matmul:M=384,N=384,K=384",
    "matmul:M=64,N=1024,K=1024",
    "conv2d:N=1,H=28,W=28,CI=128,CO=128,KH=3,KW=3,pad=1,layout=NHWC",
    "softmax:M=1024,N=1024",
)
ROUNDS = 3
CALLING_S = 0.7


def instances(url: str, trials: int) -> None:
    """Tunes each workload for every thread count, and calls all of them by hand."""
    cores = sorted(os.sched_getaffinity(0))
    right = 0
    for spec in SPECS:
        workload = parse_spec(spec)
        kernels = {
            threads: kept(workload, threads, url) or tuned(workload, threads, url, trials)
            for threads in (1, len(cores))
        }
        target = kernels[1].stored.target
        with closing(open_database(url, create=False)) as database:
            measure_idle(database, workload, target, 1, (THROUGHPUT,), load_settings().values)
        rates: dict[int, list[float]] = {threads: [] for threads in kernels}
        for _ in range(ROUNDS):
            for threads, kernel in kernels.items():
                rates[threads].append(by_hand(kernel, threads, cores))
        with open_database(url, create=False).read() as session:
            choices = tradeoffs.choices(session, workload.key, target, None)
        (best,) = chosen(choices, Goal(objectives=(THROUGHPUT,)), lambda each: each.figures)
        fastest = max(rates, key=lambda threads: median(rates[threads]))
        right += best.threads == fastest
        said = {each.threads: each.calls_per_s for each in choices}
        parts = ", ".join(
            f"{len(cores) // threads} × {threads}: {median(each):.0f} by hand, "
            f"{said.get(threads) or 0:.0f} told"
            for threads, each in rates.items()
        )
        print(f"{spec}: {parts}; chosen {len(cores) // best.threads} × {best.threads}", flush=True)
    print(f"{right} of {len(SPECS)} choices are the best by hand")


def kept(workload: Workload, threads: int, url: str) -> Kernel | None:
    """The kernel of an earlier run."""
    kernel = kept_kernel(workload, load_settings({"threads": threads, "db": url}).values)
    assert kernel is None or isinstance(kernel, Kernel)
    return kernel


def tuned(workload: Workload, threads: int, url: str, trials: int) -> Kernel:
    made = tuner.tune(workload.spec, trials=trials, threads=threads, db=url)
    assert isinstance(made, Kernel)
    return made


def by_hand(kernel: Kernel, threads: int, cores: list[int]) -> float:
    """Calls a second of as many processes as there is room for, all together."""
    count = len(cores) // threads
    context = multiprocessing.get_context("spawn")
    barrier, queue = context.Barrier(count), context.Queue()
    processes = [
        context.Process(
            target=_call,
            args=(
                kernel.stored,
                kernel.workload.spec,
                set(cores[place * threads : (place + 1) * threads]),
                barrier,
                queue,
            ),
        )
        for place in range(count)
    ]
    for process in processes:
        process.start()
    total = sum(queue.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
    return float(total)


def _call(stored: StoredKernel, spec: str, cores: set[int], barrier: Any, queue: Any) -> None:
    os.sched_setaffinity(0, cores)
    rng = np.random.default_rng(0)
    store = ArtifactStore(load_settings().values.artifacts)
    kernel = Kernel(stored=stored, workload=parse_spec(spec), artifacts=store)
    expression = kernel.workload.expression
    arrays = [aligned_copy(rng.random(tensor.shape, np.float32)) for tensor in expression.inputs]
    out = kernel(*arrays)
    for _ in range(20):
        kernel(*arrays, out=out)
    barrier.wait()
    started, calls = time.perf_counter(), 0
    while time.perf_counter() - started < CALLING_S:
        for _ in range(10):
            kernel(*arrays, out=out)
        calls += 10
    queue.put(calls / (time.perf_counter() - started))
