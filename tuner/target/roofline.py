"""The least time that a machine could need, and which times are too good to be true.

From measured limits only. After Williams, Waterman, Patterson: Roofline (CACM 2009). A
kernel needs at least the time of its arithmetic at the multiply-add rate, and at least
the time of moving each input and output once at the bandwidth of its working set. On a
GPU it needs at least the time of a launch, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import log2

from tuner.errors import UsageError
from tuner.target.architectures.table import isa_of
from tuner.target.isa import DotProduct, MatrixUnit
from tuner.target.target import ArithmeticRate, Bandwidth, Limits, Target

STEADY_FACTOR = 1.15  # highest over median multiply-add rate, within which a machine's speed is one
# Times the highest limit ever measured: above it a timing is a mistake, not a discovery.
IMPLAUSIBLE_FACTOR = 1.2
# Arithmetic rates relative to float32's, where they differ. 8-bit integers are widened to 16.
RATES: Mapping[str, float] = {
    "float64": 0.5, "int64": 0.5, "uint64": 0.5, "int8": 2.0, "uint8": 2.0,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a kernel has to do, by its own algorithm's count."""

    flops: int  # a multiply-add as 2; Winograd's own count for Winograd
    nbytes: int  # each input and output once
    dtype: str = "float32"  # of the arithmetic's operands
    threads: int = 1


def least_seconds(work: Work, target: Target) -> float:
    """The roofline: the longer of computing and moving.

    Bandwidth is that of one core at its share of the working set, times the threads:
    exact for private caches, optimistic for what cores share. Raises UsageError for a
    target without limits.
    """
    limits = _limits(target)
    threads = min(work.threads, target.cores)
    compute_s = work.flops / (limits.fma_flops * relative_rate(work.dtype, target) * threads)
    move_s = work.nbytes / (bandwidth_at(limits, work.nbytes / threads) * threads)
    return max(compute_s, move_s, limits.launch_s or 0.0)


def floor_seconds(work: Work, target: Target) -> float:
    """As `least_seconds`, at the highest rates ever measured. A search ends where this is reached.

    The median may come from a bad hour: on a shared machine it was two thirds of the
    highest, and jobs ended after two trials.
    """
    flops_limit, bytes_limit = _highest_rates(work, target)
    launch_s = _limits(target).launch_s or 0.0
    return max(work.flops / flops_limit, work.nbytes / bytes_limit, launch_s)


def is_steady(limits: Limits) -> bool:
    """Whether the machine's speed is known to a few percent.

    Only then does being near its limit mean something.
    """
    return limits.fma_flops_best <= STEADY_FACTOR * limits.fma_flops


def roofline_fraction(median_s: float, work: Work, target: Target) -> float:
    """How near to the limit a time is: 1 at the roofline, 0.5 at half its speed.

    Noise may make it a little more than 1.
    """
    return least_seconds(work, target) / median_s


def implausible(median_s: float, work: Work, target: Target) -> str | None:
    """Why this time cannot be, with the rate and its limit; None for a plausible time.

    The caller measures the limits once more before it believes the verdict. Raises
    UsageError for a target without limits.
    """
    flops_limit, bytes_limit = _highest_rates(work, target)
    for rate, limit, unit in (
        (work.flops / median_s, flops_limit, "GFLOP/s"),
        (work.nbytes / median_s, bytes_limit, "GB/s"),
    ):
        if rate > IMPLAUSIBLE_FACTOR * limit:
            return (
                f"{rate / 1e9:.1f} {unit} is {rate / limit:.2f} times the {limit / 1e9:.1f} "
                f"it ever reached when measured"
            )
    launch_s = _limits(target).launch_s
    if launch_s is not None and launch_s > IMPLAUSIBLE_FACTOR * median_s:
        return (
            f"{median_s * 1e6:.2f} us is less than the {launch_s * 1e6:.2f} that an empty kernel "
            f"took when measured"
        )
    return None


def _highest_rates(work: Work, target: Target) -> tuple[float, float]:
    """Operations and bytes a second that all threads together ever reached."""
    limits = _limits(target)
    threads = min(work.threads, target.cores)
    measured = [rate.flops_best for rate in rates_of(limits, work.dtype)]
    flops = max([limits.fma_flops_best * relative_rate(work.dtype, target) * threads, *measured])
    return flops, highest_bandwidth(limits, work.nbytes / threads) * threads


def relative_rate(dtype: str, target: Target) -> float:
    """Arithmetic rate of a dtype, relative to that of float32.

    Of a GPU the highest that was measured of any of its units. Of a CPU by the elements
    of a register, or by the target's dot products and matrix units where those do more.
    float16 and bfloat16 are summed in float32, so without such instructions they run at
    its rate at best.
    """
    limits = target.limits
    if limits is not None and (measured := rates_of(limits, dtype)):
        return max(rate.flops for rate in measured) / limits.fma_flops
    isa = isa_of(target)
    instructions: tuple[DotProduct | MatrixUnit, ...] = (*isa.dot_products, *isa.matrix_units)
    plain = 2.0 if dtype == "float16" and isa.native_float16 else RATES.get(dtype, 1.0)
    rates = [instruction.rate for instruction in instructions if dtype in instruction.factors]
    return max([plain, *rates])


def rates_of(limits: Limits, dtype: str) -> tuple[ArithmeticRate, ...]:
    """What was measured of a GPU's units with factors of a dtype, whatever their sign."""
    signed = dtype.removeprefix("u")
    return tuple(rate for rate in limits.rates if rate.dtype == signed)


def bandwidth_at(limits: Limits, working_set_bytes: float) -> float:
    """Bytes a second of one core: the best of read, write and copy.

    Interpolated over the logarithm of the working set.
    """
    table = limits.bandwidth
    if working_set_bytes <= table[0].working_set_bytes:
        return _best(table[0])
    for low, high in pairwise(table):
        if working_set_bytes <= high.working_set_bytes:
            span = log2(high.working_set_bytes / low.working_set_bytes)
            part = log2(working_set_bytes / low.working_set_bytes) / span
            return _best(low) + part * (_best(high) - _best(low))
    return _best(table[-1])


def highest_bandwidth(limits: Limits, working_set_bytes: float) -> float:
    """The highest bandwidth measured with this working set or more, or the next smaller one.

    Between two measured sizes the faster level of the memory still serves a part.
    """
    smaller = [entry for entry in limits.bandwidth if entry.working_set_bytes <= working_set_bytes]
    return max(map(_best, limits.bandwidth[max(0, len(smaller) - 1) :]))


def _best(entry: Bandwidth) -> float:
    return max(entry.read, entry.write, entry.copy)


def _limits(target: Target) -> Limits:
    if target.limits is None:
        raise UsageError(
            f"the limits of {target.name} have not been measured; run the measurement on it first"
        )
    return target.limits
