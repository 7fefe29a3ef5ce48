"""Terms of the memory hierarchy: bytes that miss each cache, and waits for them.

The bandwidths are round numbers of current x86 cores. What a cycle of each term costs
is learned from measurements (calibration.py).
"""

from __future__ import annotations

import numpy as np

from tuner.cost_model.arrays import Floats
from tuner.cost_model.cpu.terms.counts import KernelCounts
from tuner.target.architectures.table import isa_of
from tuner.target.target import Target

# Bytes a cycle that come in from beyond the first, second and third cache, while others do too.
L2_BYTES_PER_CYCLE, L3_BYTES_PER_CYCLE, DRAM_BYTES_PER_CYCLE = 48, 16, 6
L2_STREAM_BYTES_PER_CYCLE = 32  # of one stream of lines
FOLLOWED_LINES = 4.0  # one after the other, from which a prefetcher follows
HIDDEN_CYCLES = 64.0  # of a wait that other work fills
# Cycles that a core waits for a run on another page than the one before it, which no
# prefetcher asks for (docs/design-notes/0004).
PAGE_CROSSING_CYCLES = 3.6


def beyond_l1(kernel: KernelCounts) -> Floats:
    """Bytes from beyond the first cache that no prefetching hides, in cycles."""
    own = kernel.read(0) - kernel.reloaded_sums(0)
    return _unhidden(kernel, own / L2_BYTES_PER_CYCLE)


def beyond_l2(kernel: KernelCounts) -> Floats:
    """Bytes from beyond the second cache that no prefetching hides, in cycles."""
    own = kernel.read(1) - kernel.reloaded_sums(1)
    return _unhidden(kernel, own / L3_BYTES_PER_CYCLE)


def beyond_l3(kernel: KernelCounts) -> Floats:
    """Bytes from beyond the third cache that no prefetching hides, in cycles."""
    return _unhidden(kernel, kernel.read(2) / DRAM_BYTES_PER_CYCLE)


def _unhidden(kernel: KernelCounts, cycles: Floats) -> Floats:
    left: Floats = np.maximum(cycles - kernel.hidden_by_prefetching, 0.0)
    return left


def written_beyond_l1(kernel: KernelCounts) -> Floats:
    """Results written once that miss the first cache, in cycles: they come in first."""
    cycles: Floats = kernel.written(0) * kernel.written_once / L2_BYTES_PER_CYCLE
    return cycles


def written_beyond_l2(kernel: KernelCounts) -> Floats:
    """Results written once that miss the second cache, in cycles."""
    cycles: Floats = kernel.written(1) * kernel.written_once / L3_BYTES_PER_CYCLE
    return cycles


def non_temporal_stores(kernel: KernelCounts) -> Floats:
    """Results written past the caches, in cycles.

    A core joins the stores to a line that follow each other at once, in one tile. Each
    other part of a line goes to memory by itself.
    """
    nest = kernel.nest
    tile = (
        nest.span[nest.vector] if nest.vector >= 0 else np.ones(len(kernel.work.bodies), np.float32)
    )
    parts = np.maximum(kernel.table.isa.line_bytes / kernel.table.dtype_bytes / tile, 1.0)
    cycles: Floats = kernel.written(0) * kernel.written_past_caches / L3_BYTES_PER_CYCLE * parts
    return cycles


def reloaded_sums_l1(kernel: KernelCounts) -> Floats:
    """Sums that come in from the second cache for the next reduction block, in cycles.

    They lie side by side, so that the hardware prefetches them.
    """
    cycles: Floats = kernel.reloaded_sums(0) / L2_BYTES_PER_CYCLE
    return cycles


def reloaded_sums_l2(kernel: KernelCounts) -> Floats:
    """As `reloaded_sums_l1`, from beyond the second cache."""
    cycles: Floats = kernel.reloaded_sums(1) / L3_BYTES_PER_CYCLE
    return cycles


def scattered_store_lines_l1(kernel: KernelCounts) -> Floats:
    """Lines beyond the first cache that are written one element at a time.

    No prefetcher follows them.
    """
    lines: Floats = kernel.written(0) / kernel.table.isa.line_bytes * (kernel.work.scattered > 0)
    return lines


def scattered_store_lines_l2(kernel: KernelCounts) -> Floats:
    """As `scattered_store_lines_l1`, beyond the second cache."""
    lines: Floats = kernel.written(1) / kernel.table.isa.line_bytes * (kernel.work.scattered > 0)
    return lines


def tlb_misses(kernel: KernelCounts) -> Floats:
    """Pages read whose addresses the first-level TLB does not hold."""
    pages: Floats = kernel.work.memory.tlb_misses[:-1].sum(axis=0)
    return pages


def short_store_runs(kernel: KernelCounts) -> Floats:
    """Runs of written lines that are too short for a prefetcher to follow."""
    followed = kernel.written(0) / kernel.table.isa.line_bytes / FOLLOWED_LINES
    runs: Floats = (
        np.maximum(kernel.work.memory.tlb_misses[-1] - followed, 0.0) * ~kernel.nest.non_temporal
    )
    return runs


def run_restarts(kernel: KernelCounts) -> Floats:
    """Cycles waited for the first line of each run from beyond the second cache."""
    cycles: Floats = kernel.work.memory.runs[:-1].sum(axis=0) * restart_cycles(kernel.target)
    return cycles


def load_stalls_l1(kernel: KernelCounts) -> Floats:
    """Cycles that arithmetic waits for the second cache, and for runs on another page."""
    arrival = (
        kernel.read(0) / L2_STREAM_BYTES_PER_CYCLE
        + PAGE_CROSSING_CYCLES * kernel.work.memory.page_crossings
    )
    cycles: Floats = np.maximum(arrival - kernel.arithmetic, 0.0)
    return cycles


def load_stalls_l2(kernel: KernelCounts) -> Floats:
    """Cycles that arithmetic waits for what comes from beyond the second cache."""
    cycles: Floats = np.maximum(kernel.read(1) / L3_BYTES_PER_CYCLE - kernel.arithmetic, 0.0)
    return cycles


def unhidden_traffic_l1(kernel: KernelCounts) -> Floats:
    """Cycles of transfers from the second cache that come in at once, in a read's first pass."""
    return _burst(kernel, 0, L2_BYTES_PER_CYCLE)


def unhidden_traffic_l2(kernel: KernelCounts) -> Floats:
    """As `unhidden_traffic_l1`, from beyond the second cache."""
    return _burst(kernel, 1, L3_BYTES_PER_CYCLE)


def _burst(kernel: KernelCounts, cache: int, bytes_per_cycle: int) -> Floats:
    """Cycles of transfers that arithmetic would hide if they were spread evenly.

    A read brings in all of its data in the first of its passes, so that only the
    arithmetic of that pass hides the transfers.
    """
    transfers = kernel.work.memory.missed[cache][:-1] / bytes_per_cycle
    passes = kernel.work.memory.passes[cache][:-1]
    at_once = np.maximum(transfers - kernel.arithmetic / passes, 0.0)
    spread = np.maximum(transfers - kernel.arithmetic, 0.0)
    cycles: Floats = (at_once - spread).sum(axis=0)
    return cycles


def interleaved_runs(kernel: KernelCounts) -> Floats:
    """Bytes of more runs at a time than a prefetcher follows, in cycles beyond the arithmetic."""
    arrival = kernel.work.memory.interleaved / L3_BYTES_PER_CYCLE
    cycles: Floats = np.maximum(arrival - kernel.arithmetic, 0.0)
    return cycles


def set_conflicts(kernel: KernelCounts) -> Floats:
    """Accesses to lines that push each other out of a set of the first cache."""
    work = kernel.work
    writes = work.lives * work.conflicting_writes * ~kernel.nest.non_temporal
    accesses: Floats = work.bodies * work.conflicting_reads + writes
    return accesses


def restart_cycles(target: Target) -> float:
    """Cycles that the first line of a run from beyond the second cache is waited for.

    A stream that only waits for memory has a line on its way for each fill buffer. By
    Little's law one of them takes that many times as long as passes between two.
    HIDDEN_CYCLES is what that is at 16 bytes a cycle. 0 where nothing was measured.
    """
    if target.limits is None:
        return 0.0
    bytes_per_s = next(
        (
            entry.read
            for entry in target.limits.bandwidth
            if entry.working_set_bytes >= 2 * target.l2_bytes
        ),
        None,
    )
    if bytes_per_s is None:
        return 0.0
    isa = isa_of(target)
    units = isa.fma_units_of(target.vector_bytes)
    float32_lanes = target.vector_bytes / 4
    clock_hz = target.limits.fma_flops_best / (2 * units * float32_lanes)
    return max(isa.line_fill_buffers * isa.line_bytes * clock_hz / bytes_per_s - HIDDEN_CYCLES, 0.0)
