"""Measure what isolation costs a kernel's timing, and a trial.

    python -m benchmarks.isolation --rounds 30 --json isolation.json

A compute-bound and a memory-bound kernel are timed at each level and without any,
interleaved. Without any, the kernel is timed by the same plan in a fork of this process
that is pinned to the lane and nothing else.

Levels are compared by the medians of their rounds, paired round by round as in a race:
the ratio to level `process` with its 95% interval. Run it on a machine that does nothing
else.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tuner.lowering.compiler import Compiled, compile_kernel
from tuner.measure.assignment import Assignment, Lane, Request
from tuner.measure.outcome import Timed
from tuner.measure.runner import RunnerProcess
from tuner.measure.sandbox.isolation import LEVELS
from tuner.measure.statistics import ratio_of_medians
from tuner.measure.timing import PROMOTION, SCREENING, TimingPlan, time_calls
from tuner.models.arrays import aligned_copy
from tuner.runtime.link import Function, link
from tuner.runtime.loader import Library
from tuner.spaces.by_target import space_of
from tuner.target.detect import detect_cpu
from tuner.workload.spec import parse_spec
from tuner.workload.workload import Workload

KERNELS: Mapping[str, str] = {
    "compute-bound": "matmul:M=512,N=512,K=512",
    # 128 MiB moved a call: beyond every last-level cache's share
    "memory-bound": "bias_act:M=4096,N=4096,act=relu",
}
BARE_TRIALS = (
    "compute-bound"  # whose bare trials are timed: the other one's consist of checking its output
)
CANDIDATES = 12  # sampled configs of which the fastest stands for its kind
TIMEOUT_S = 60.0
NONE = "none"
ALL = (NONE, *LEVELS)
BARE = TimingPlan(budget_s=0.0, min_samples=1, min_repeat_s=0.0, warmup_s=0.0)


def fastest(workload: Workload, threads: int, folder: Path, runner: RunnerProcess) -> Request:
    """The best of a few sampled configs, as a request by the promotion's plan."""
    target = detect_cpu()
    space = space_of(workload, target, threads).space
    timed: list[tuple[float, Request]] = []
    for number, point in enumerate(space.sample(np.random.default_rng(0), CANDIDATES)):
        config = space.config(point)
        compiled = compile_kernel(
            workload=workload, target=target, threads=threads, config=config, symbol="candidate"
        )
        library = folder / f"lib{number}.so"
        library.write_bytes(link("kernel", [function(workload, compiled, threads)]))
        request = Request(
            name="kernel",
            library=str(library),
            symbol="kernel_main",
            timeout_s=TIMEOUT_S,
            plan=SCREENING,
        )
        outcome = runner.measure(request)
        if isinstance(outcome, Timed):
            timed.append((outcome.median_s, request))
    if not timed:
        raise SystemExit(f"none of {CANDIDATES} configs of {workload.spec} could be measured")
    return replace(min(timed, key=lambda pair: pair[0])[1], plan=PROMOTION)


def function(workload: Workload, compiled: Compiled, threads: int) -> Function:
    expression = workload.expression
    return Function(
        symbol="kernel_main",
        inputs=expression.inputs,
        outputs=tuple(expression.tensor(name) for name in expression.outputs),
        object_code=compiled.object_code,
        isa=(),  # it runs where it was compiled
        threads=threads,
        tvm_symbol=f"__tvm_ffi_{compiled.symbol}",
    )


def compare(
    spec: str, lane: Lane, threads: int, rounds: int, folder: Path, *, bare: bool
) -> dict[str, Any]:
    """Compare the levels of isolation for one kernel.

    Gives, by level, the median in seconds, the ratio to the first level with its
    interval, and the seconds of a bare trial where these are wanted.
    """
    workload = parse_spec(spec)
    with ExitStack() as stack:
        runners = {level: stack.enter_context(RunnerProcess()) for level in LEVELS}
        for level, runner in runners.items():
            runner.prepare(
                Assignment(workload=workload, lane=lane, threads=threads, isolation=level)
            )
        request = fastest(workload, threads, folder, runners[LEVELS[0]])
        samples: dict[str, list[tuple[float, ...]]] = {level: [] for level in ALL}
        for number in range(rounds):
            shift = number % len(ALL)
            for level in ALL[shift:] + ALL[:shift]:  # no level always comes first
                if level == NONE:
                    samples[level].append(unfenced(workload, request, lane, threads))
                else:
                    samples[level].append(
                        measure(runners[level], request, f"{spec} at level {level}").samples_s
                    )
        trials = {
            level: [trial_s(runners[level], request) for _ in range(rounds)]
            for level in LEVELS
            if bare
        }
    ratios = {level: ratio_of_medians(samples[level], samples[LEVELS[0]]) for level in ALL}
    return {
        level: {
            "median_s": median(median(seconds) for seconds in samples[level]),
            "ratio": ratios[level].value,
            "ci95": ratios[level].ci95,
            "trial_s": median(trials[level]) if level in trials else None,
        }
        for level in ALL
    }


def unfenced(workload: Workload, request: Request, lane: Lane, threads: int) -> tuple[float, ...]:
    """Samples of the kernel in a plain fork: what a program sees that links the library."""
    expression = workload.expression
    rng = np.random.default_rng(0)
    outputs = [expression.tensor(name) for name in expression.outputs]
    arrays = [
        rng.standard_normal(tensor.shape, dtype=np.float32)
        for tensor in (*expression.inputs, *outputs)
    ]
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.sched_setaffinity(0, lane.cores)
            library = Library(request.library or "")
            library.set_num_threads(threads)
            aligned = [aligned_copy(array) for array in arrays]
            timing = time_calls(
                lambda number, repeat: library.time(request.symbol, aligned, number, repeat),
                request.plan,
                abandon_above_s=None,
            )
            os.write(writing, json.dumps(timing.samples_s).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    if os.waitpid(pid, 0)[1] != 0:
        raise SystemExit(f"{workload.spec} could not be timed without isolation")
    return tuple(json.loads(said))


def measure(runner: RunnerProcess, request: Request, what: str) -> Timed:
    outcome = runner.measure(request)
    if not isinstance(outcome, Timed):
        raise SystemExit(f"{what}: {outcome.message}")
    return outcome


def trial_s(runner: RunnerProcess, request: Request) -> float:
    """Seconds of a trial that checks as usual and times next to nothing.

    It shows what isolation adds to each trial.
    """
    started = time.perf_counter()
    measure(runner, replace(request, plan=BARE), "a bare trial")
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    cores = tuple(sorted(os.sched_getaffinity(0)))[-options.threads :]
    if len(cores) < options.threads or options.rounds < 3:
        parser.error(
            f"{options.threads} threads, {options.rounds} rounds: at most {len(cores)} threads, "
            f"at least 3 rounds"
        )
    figures: dict[str, dict[str, Any]] = {}
    print(f"{'kernel':14} {'level':9} {'median':>12} {'ratio to process':>28} {'bare trial':>14}")
    for name, spec in KERNELS.items():
        with tempfile.TemporaryDirectory(prefix="tuner-isolation-") as folder:
            lane = Lane(name=f"cpu:{cores[0]}", cores=cores)
            figures[name] = compare(
                spec, lane, options.threads, options.rounds, Path(folder), bare=name == BARE_TRIALS
            )
        for level, figure in figures[name].items():
            low, high = figure["ci95"]
            print(
                f"{name:14} {level:9} {figure['median_s'] * 1e6:9.2f} us {figure['ratio']:9.4f} "
                f"[{low:.4f}, {high:.4f}] "
                + ("" if figure["trial_s"] is None else f"{figure['trial_s'] * 1e3:11.2f} ms")
            )
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    if os.getloadavg()[0] > len(os.sched_getaffinity(0)):
        print("the machine is busy: these figures say little", file=sys.stderr)


if __name__ == "__main__":
    main()
