"""Kernels of sparse and gathered work beside SciPy and PyTorch, and the density from which on
they pay.

    python -m benchmarks.sparse -o results [--suite benchmarks/kernels/sparse.json] [--only NAMES]
    python -m benchmarks.sparse -o results --mkl LIBRARY --taco FOLDER [--only NAMES]
    python -m benchmarks.sparse -o results --densities [--only spmv,spmm]

Each workload is tuned, unless the folder has its kernel already, and called in turn with the
libraries in one process, on the same arrays. So a case takes a second behind its tuning,
where `benchmarks.kernels` starts three processes in each of seven rounds.

With `--mkl` and the path of libmkl_rt, MKL takes part in products with a matrix, with `--taco` and
a folder of kernels that taco wrote (`benchmarks/csr_libraries.py` says how) taco does.

`--densities` prints for each operator on a sparse pattern the density below which its kernel
takes less time than the dense kernel that computes the same or more.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from itertools import pairwise
from math import exp, log
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

import tuner
from benchmarks import csr_libraries
from benchmarks.csr_libraries import CsrProduct
from benchmarks.kernels.options import command_line, names
from benchmarks.kernels.report import TITLES, hundredths, significant
from benchmarks.kernels.suite import read_suite
from benchmarks.measurement import (
    Measurement,
    Table,
    Value,
    current_commit,
    file_name,
    this_machine,
    to_text,
)
from benchmarks.models.race import settle
from tuner.app.kernels.kernel import Kernel
from tuner.app.races.race import kept_kernel
from tuner.measure.rivals.rivals import RivalError, clock_calls, open_rival
from tuner.runtime.loader import Library, aligned_empty
from tuner.settings import Settings, load_settings
from tuner.target.detect import detect_cpu
from tuner.workload.inputs import make_inputs
from tuner.workload.spec import parse_spec
from tuner.workload.workload import Workload

SUITE = Path(__file__).with_name("kernels") / "sparse.json"
RIVALS = ("scipy", "torch")
CSR_LIBRARIES = {"mkl": csr_libraries.mkl, "taco": csr_libraries.taco}  # that have to be given
SAMPLE_S = 2e-3  # of calls in a row
WARM_S = 2e-2  # of calls before each: systems take a few ms to spread threads over cores
TOLERANCE = 1e-2  # of the greatest number; narrow floats are rounded by either side
DENSITIES = (0.01, 0.05, 0.2, 0.5)
Clock = Callable[[int], float]  # seconds of a call, the mean of so many in a row


@dataclass(frozen=True, kw_only=True)
class Pair:
    """An operator by its density, and the dense one that takes its place."""

    sparse: Callable[[float], str]
    dense: str


PAIRS = {
    "spmv": Pair(
        sparse=lambda density: f"spmv:M=2048,N=2048,density={density}",
        dense="matmul:M=2048,N=1,K=2048",
    ),
    "spmm": Pair(
        sparse=lambda density: f"spmm:M=1024,N=1024,K=64,density={density}",
        dense="matmul:M=1024,N=64,K=1024",
    ),
    "sddmm": Pair(
        sparse=lambda density: f"sddmm:M=1024,N=1024,K=64,density={density}",
        dense="matmul:M=1024,N=1024,K=64,transpose_b=true",
    ),
    "embedding_bag": Pair(
        sparse=lambda density: f"embedding_bag:V=1024,D=64,B=1024,L={round(1024 * density)}",
        dense="matmul:M=1024,N=64,K=1024",
    ),
    "slide_layer": Pair(
        sparse=lambda density: f"slide_layer:B=128,D=128,C=8192,L={round(8192 * density)}",
        dense="dense:M=128,N=8192,K=128,bias=true",
    ),
    "slide_layer_gradient": Pair(
        sparse=lambda density: f"slide_layer_gradient:B=128,D=128,C=8192,L={round(8192 * density)}",
        dense="matmul:M=128,N=128,K=8192",
    ),
    "gather_matmul": Pair(
        sparse=lambda density: f"gather_matmul:V=2048,M={round(2048 * density)},N=256,K=256",
        dense="matmul:M=2048,N=256,K=256",
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("-o", dest="folder", type=Path, required=True)
    parser.add_argument("--suite", type=Path, default=SUITE)
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--densities", action="store_true", help="against our own dense kernels")
    parser.add_argument("--mkl", type=Path, help="libmkl_rt.so of MKL, which takes part")
    parser.add_argument("--taco", type=Path, help="the folder of taco's kernels, which take part")
    parser.add_argument("--trials", type=int, default=48)
    parser.add_argument("--seconds", type=float, default=12, help="of a search, at most")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args(arguments)
    folder: Path = options.folder.absolute()
    os.environ["TUNER_DATA_DIR"] = str(folder / "data")
    settings = load_settings(
        {"trials": options.trials, "seconds": options.seconds, "threads": options.threads}
    ).values
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    only = names(options.only)
    if options.densities:
        suite, tables = "densities", [densities(settings, only, options.rounds)]
    else:
        cases = {case.name: case.workload for case in read_suite(options.suite, only)}
        suite = options.suite.stem
        others = {name: getattr(options, name) for name in CSR_LIBRARIES if getattr(options, name)}
        tables = [races(settings, cases, options.rounds, others)]
    target = detect_cpu()
    document = Measurement(
        suite=suite,
        date=datetime.now(UTC).date().isoformat(),
        machine=this_machine(str(target.tvm["mcpu"]), target.name),
        commit=current_commit(),
        command=command_line("benchmarks.sparse", sys.argv[1:] if arguments is None else arguments),
        conditions=[
            f"{options.threads} thread(s), at most {options.trials} trials; medians of "
            f"{options.rounds} samples in turn, of {1e3 * SAMPLE_S:g} ms each, behind "
            f"{1e3 * WARM_S:g} ms of calls."
        ],
        tables=tables,
    )
    path = folder / file_name(document)
    path.write_text(to_text(document))
    print(path)


def races(
    settings: Settings, cases: Mapping[str, Workload], rounds: int, given: Mapping[str, Path]
) -> Table:
    """The times of each case's kernel and of the libraries that have a route to it.

    `given` has the places of libraries of `CSR_LIBRARIES` that take part.
    """
    libraries = (*RIVALS, *given)
    timed = ("kernel", *libraries)
    rows: list[list[Value]] = []
    ratios: list[float] = []
    for name, workload in cases.items():
        kernel = kernel_of(workload, settings)
        with pinned(settings.threads):
            clocks = contenders(kernel, workload, settings.threads)
            clocks |= csr_clocks(workload, settings.threads, given)
            times = in_turn(clocks, rounds)
        others = {rival: times[rival] for rival in libraries if rival in times}
        fastest = min(others, key=others.__getitem__, default=None)
        ratio = None if fastest is None else others[fastest] / times["kernel"]
        ratios += [] if ratio is None else [ratio]
        shown = [significant(1e3 * times[who]) if who in times else None for who in timed]
        library = None if fastest is None else TITLES[fastest]
        rows.append([name, *shown, library, hundredths(ratio)])
        print(*rows[-1], sep="  ", flush=True)
    if ratios:
        mean = hundredths(exp(fmean(map(log, ratios))))
        rows.append(["geometric mean", *[None] * len(timed), None, mean])
        print(f"geometric mean {mean} of {len(ratios)}, smallest {min(ratios):.2f}")
    columns = {"workload": "", **{TITLES[who]: "ms" for who in timed}}
    columns |= {"library": "", "fastest library / kernel": "ratio"}
    return Table(title="", columns=columns, rows=rows)


def csr_clocks(workload: Workload, threads: int, given: Mapping[str, Path]) -> dict[str, Clock]:
    """Libraries of `CSR_LIBRARIES` on the inputs of `contenders`, which compute the same."""
    clocks: dict[str, Clock] = {}
    for name, place in given.items():
        try:
            product = CsrProduct.of(workload, make_inputs(workload.expression, 1))
            call = CSR_LIBRARIES[name](place, product, threads)
            call()
            check(workload, product.result, product.expected())
        except (OSError, RivalError) as error:
            print(f"{name} takes no part: {error}", flush=True)
        else:
            clocks[name] = partial(_mean_s, call)
    return clocks


def _mean_s(call: csr_libraries.Multiply, number: int) -> float:
    (sample,) = clock_calls(call, number, 1)
    return sample


def densities(settings: Settings, only: Sequence[str], rounds: int) -> Table:
    """The times of sparse kernels over that of the dense one, and where they are equal."""
    pairs = {name: pair for name, pair in PAIRS.items() if not only or name in only}
    rows: list[list[Value]] = []
    for name, pair in pairs.items():
        workloads = [parse_spec(spec) for spec in (pair.dense, *map(pair.sparse, DENSITIES))]
        kernels = [kernel_of(workload, settings) for workload in workloads]
        with pinned(settings.threads):
            clocks = {
                workload.spec: contenders(kernel, workload, settings.threads, ())["kernel"]
                for workload, kernel in zip(workloads, kernels, strict=True)
            }
            dense, *sparse = in_turn(clocks, rounds).values()
        pays = crossing(DENSITIES, [each / dense for each in sparse])
        times = [significant(1e3 * each) for each in (dense, *sparse)]
        rows.append([name, *times, None if pays is None else Decimal(f"{100 * pays:.3g}")])
        print(f"{name}: pays {said(pays)}", flush=True)
    columns = {"operator": "", "dense": "ms"}
    columns |= {f"density {density:g}": "ms" for density in DENSITIES}
    return Table(title="", columns={**columns, "pays below": "%"}, rows=rows)


def said(pays: float | None) -> str:
    if pays is None:
        return f"at none of the densities from {DENSITIES[0]:.0%} on"
    return f"{'at least ' * (pays == DENSITIES[-1])}below a density of {pays:.1%}"


def crossing(places: Sequence[float], ratios: Sequence[float]) -> float | None:
    """Where ratios, which rise, are 1: on straight lines between their logarithms.

    None where even the first one is above 1; the last place where all are below.
    """
    if ratios[0] >= 1:
        return None
    points = list(zip(map(log, places), map(log, ratios), strict=True))
    for (left, low), (right, high) in pairwise(points):
        if high >= 0:
            return exp(left + (right - left) * -low / (high - low))
    return places[-1]


def kernel_of(workload: Workload, settings: Settings) -> Kernel:
    """The kernel that the folder has, or else one tuned for it."""
    kernel = kept_kernel(workload, settings)
    if kernel is None:
        kernel = tuner.tune(
            workload,
            trials=settings.trials,
            seconds=settings.seconds,
            threads=settings.threads,
            db=settings.db,
        )
        print(f"{workload.spec}: {1e3 * kernel.median_s:.4g} ms {dict(kernel.config)}", flush=True)
    assert isinstance(kernel, Kernel)
    return kernel


def contenders(
    kernel: Kernel, workload: Workload, threads: int, rivals: Sequence[str] = RIVALS
) -> dict[str, Clock]:
    """The kernel and the libraries on the same inputs, which compute the same."""
    expression = workload.expression
    inputs, arrays = make_inputs(expression, 1), []
    for tensor in expression.inputs:
        given = inputs[tensor.name]
        arrays.append(aligned_empty(given.shape, given.dtype))
        arrays[-1][...] = given
    (output,) = (expression.tensor(name) for name in expression.outputs)
    (argument,) = kernel.signature.outputs
    result = aligned_empty(output.shape, argument.numpy_dtype)
    library = Library(kernel.path)
    library.set_num_threads(threads)
    library.call(kernel.symbol, [*arrays, result])

    def own(number: int) -> float:
        (sample,) = library.time(kernel.symbol, [*arrays, result], number, 1)
        return sample

    clocks: dict[str, Clock] = {"kernel": own}
    for name in rivals:
        try:
            rival = open_rival(name, workload, arrays, threads)
            rival.route.call()
            check(workload, rival.route.result(), result)
        except RivalError as error:
            print(f"{name} takes no part: {error}", flush=True)
        else:
            clocks[name] = partial(_clocked, rival)
    return clocks


def _clocked(rival: Any, number: int) -> float:
    (sample,) = rival.clock(number, 1)
    return float(sample)


def check(workload: Workload, got: Any, own: Any) -> None:
    """That a library computes what the kernel does. Kernels were verified when tuned.

    Raises RivalError.
    """
    if own.dtype == np.uint16:
        own = (own.astype(np.uint32) << 16).view(np.float32)
    off = np.abs(np.asarray(got, np.float64) - own).max()
    if not off <= TOLERANCE * max(np.abs(own).max(), 1e-30):
        raise RivalError(f"it is off by {off} in {workload.spec}")


def in_turn(
    clocks: Mapping[str, Clock], rounds: int, now: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """The median of each, in seconds, with its own data in the caches.

    Untimed calls come before each sample: the contender before has evicted them. Threads
    of that one have gone to sleep by then, as have the contender's own.
    """
    samples: dict[str, list[float]] = {name: [] for name in clocks}
    for _ in range(rounds):
        for name, clock in clocks.items():
            settle()
            samples[name].append(clock(calls_in(SAMPLE_S, warmed(clock, now))))
    return {name: median(values) for name, values in samples.items()}


def warmed(clock: Clock, now: Callable[[], float]) -> float:
    """Calls for `WARM_S`; the seconds of one of the last. The first takes several times as
    long, and says nothing of how many there have to be."""
    number, ends_s = 1, now() + WARM_S
    while True:
        call_s = clock(number)
        if now() >= ends_s:
            return call_s
        number = calls_in(SAMPLE_S, call_s)


def calls_in(seconds: float, call_s: float) -> int:
    return max(1, round(seconds / call_s))


@contextmanager
def pinned(threads: int) -> Iterator[None]:
    """On as many cores as threads are used, as kernels are when they are measured."""
    usable = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(usable)[:threads])
    try:
        yield
    finally:
        os.sched_setaffinity(0, usable)


if __name__ == "__main__":
    main()
