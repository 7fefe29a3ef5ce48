"""What a GPU can do at most, measured by small kernels on the device.

They run in a process of their own, like candidates. It takes about a second, and some
seconds for the compiler; the caller stores the result with the target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from tuner.errors import TunerError
from tuner.measure.gpu.probes import (
    ARITHMETIC_BLOCKS,
    LIBRARY,
    MEMORY_BLOCKS,
    OLDEST,
    SHARED_LOADS,
    THREADS,
    VECTOR_BYTES,
    RateProbe,
    modules,
    rate_probes,
    source,
)
from tuner.measure.gpu.probing import CHECKED_ROUNDS, ProbingTask
from tuner.measure.gpu.runner import GpuLane, GpuRunner
from tuner.measure.wire import Document
from tuner.runtime.cuda_link import link_cuda
from tuner.scratch import temporary_folder
from tuner.spaces.cuda.limits import architecture_of
from tuner.target.arithmetic import ArithmeticUnit
from tuner.target.limits import LimitsError
from tuner.target.target import ArithmeticRate, Bandwidth, Limits, Target

Compile = Callable[[str, Target], bytes]
"""`compile(source, target)`: the cubin. Raises TunerError."""

# Working sets as multiples of the second-level cache: well inside of it, and outside.
SETS = (0.125, 0.25, 0.5, 4.0, 8.0, 32.0)
MOST_SET_BYTES = 1 << 30
MEMORY_SHARE = 8  # a working set takes at most this part of the device's memory


def measure_gpu_limits(target: Target, lane: GpuLane, compiled: Compile) -> Limits:
    """The limits of the lane's device, which `target` describes.

    Raises LimitsError for an architecture older than the kernels are for, and where the
    device or the compiler refuses.
    """
    architecture = architecture_of(target)
    if architecture < OLDEST:
        raise LimitsError(
            f"the limits of {target.name} cannot be measured: the kernels for it are for "
            f"sm_{OLDEST} and newer"
        )
    probes = rate_probes(architecture)
    try:
        cubin = compiled(source(probes), target)
        with GpuRunner(lane) as runner, temporary_folder("tuner-scratch-limits-") as home:
            runner.start()
            multiprocessors = int(runner.facts["multiprocessors"])
            sets = working_sets(
                int(runner.facts["l2_bytes"]) or target.l2_bytes,
                int(runner.facts["memory_bytes"]),
            )
            library = home / f"lib{LIBRARY}.so"
            library.write_bytes(
                link_cuda(
                    LIBRARY,
                    modules(
                        probes,
                        arch=str(target.tvm["arch"]),
                        cubin=cubin,
                        multiprocessors=multiprocessors,
                        set_bytes=sets[-1],
                    ),
                )
            )
            answer = runner.probe(
                ProbingTask(
                    library=str(library),
                    rates={probe.symbol: probe.word for probe in probes},
                    set_bytes=sets,
                    multiprocessors=multiprocessors,
                )
            )
        return limits_of(answer, probes, multiprocessors)
    except LimitsError:
        raise
    except (TunerError, OSError) as error:
        raise LimitsError(f"measuring the limits of {target.name} failed: {error}") from error


def working_sets(l2_bytes: int, memory_bytes: int) -> tuple[int, ...]:
    """Bytes of each working set that is moved, growing, in vectors of two halves."""
    most = min(MOST_SET_BYTES, memory_bytes // MEMORY_SHARE)
    whole = 2 * VECTOR_BYTES
    sizes = {max(whole, min(most, int(share * l2_bytes)) // whole * whole) for share in SETS}
    return tuple(sorted(sizes))


def limits_of(answer: Document, probes: Sequence[RateProbe], multiprocessors: int) -> Limits:
    """Limits from what the kernels took.

    Raises LimitsError where a kernel did not compute what its rate counts.
    """
    rates = tuple(_rate(probe, answer["rates"][probe.symbol], multiprocessors) for probe in probes)
    own = next(
        rate for rate in rates if rate.unit is ArithmeticUnit.CUDA_CORES and rate.dtype == "float32"
    )
    shared = answer["shared"]
    shared_bytes = (
        shared["rounds"] * SHARED_LOADS * VECTOR_BYTES * THREADS * MEMORY_BLOCKS * multiprocessors
    )
    return Limits(
        fma_flops=own.flops,
        fma_flops_best=own.flops_best,
        bandwidth=tuple(_bandwidth(entry) for entry in answer["memory"]),
        rates=rates,
        shared_bytes_per_s=shared_bytes / median(shared["samples_s"]),
        launch_s=min(answer["launch_s"]),
    )


def _rate(probe: RateProbe, timed: Document, multiprocessors: int) -> ArithmeticRate:
    expected = float(np.float32(probe.first_sum + CHECKED_ROUNDS * probe.round_sum))
    if not timed["least"] == timed["most"] == expected:
        raise LimitsError(
            f"the kernel {probe.symbol} summed to {timed['least']:g} to {timed['most']:g} instead "
            f"of {expected:g}; its rate would mean nothing"
        )
    flops = probe.round_flops * ARITHMETIC_BLOCKS * multiprocessors * timed["rounds"]
    return ArithmeticRate(
        unit=probe.unit,
        dtype=probe.dtype,
        flops=flops / median(timed["samples_s"]),
        flops_best=flops / min(timed["samples_s"]),
    )


def _bandwidth(entry: Document) -> Bandwidth:
    vectors = entry["set_bytes"] // VECTOR_BYTES

    def rate(timed: Any) -> float:
        return float(timed["rounds"] * vectors * VECTOR_BYTES / median(timed["samples_s"]))

    return Bandwidth(
        working_set_bytes=entry["set_bytes"],
        read=rate(entry["read"]),
        write=rate(entry["write"]),
        copy=rate(entry["copy"]),
    )
