"""Cycles of a loop nest as a sum of terms, each a reason for which a kernel takes time.

How much a unit of each term costs is another question: round numbers to begin with,
learned from what was measured on a machine (calibration.py). A term is never negative
and grows with the kernel, so that terms of several groups add up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tuner.cost_model.arrays import Floats
from tuner.cost_model.cpu.nests import NestTable
from tuner.cost_model.cpu.terms import compute, copies, memory
from tuner.cost_model.cpu.terms.counts import LIBM_CYCLES, POLYNOMIAL_CYCLES, KernelCounts
from tuner.cost_model.cpu.work import NestWork
from tuner.target.target import Target


@dataclass(frozen=True, slots=True)
class Term:
    """One reason for which a kernel takes time."""

    units: Callable[[KernelCounts], Floats]  # how much of it there is, (n,)
    cycles: float  # that a unit costs until a machine says otherwise

    @property
    def name(self) -> str:
        return self.units.__name__


# In the order of the features' columns.
TERMS: tuple[Term, ...] = (
    Term(compute.arithmetic, 2.0),
    Term(compute.operand_loads, 1.0),
    Term(compute.port_pressure, 0.3),
    Term(compute.accumulator_latency, 0.7),
    Term(compute.latency_margin, 0.2),
    Term(compute.loop, 0.5),
    Term(compute.accumulator_setup, 1.0),
    Term(compute.write_back, 0.5),
    Term(compute.partial_sums, 1.0),
    Term(compute.loads, 0.1),
    Term(memory.beyond_l1, 0.2),
    Term(memory.beyond_l2, 0.3),
    Term(memory.beyond_l3, 0.3),
    Term(memory.written_beyond_l1, 0.3),
    Term(memory.written_beyond_l2, 0.3),
    Term(memory.non_temporal_stores, 1.0),
    Term(memory.reloaded_sums_l1, 0.5),
    Term(memory.reloaded_sums_l2, 0.5),
    Term(memory.scattered_store_lines_l1, 8.0),
    Term(memory.scattered_store_lines_l2, 8.0),
    Term(memory.tlb_misses, 1.5),
    Term(memory.short_store_runs, 16.0),
    Term(memory.run_restarts, 0.3),
    Term(memory.load_stalls_l1, 0.7),
    Term(memory.load_stalls_l2, 0.3),
    Term(memory.unhidden_traffic_l1, 1.0),
    Term(memory.unhidden_traffic_l2, 1.0),
    Term(memory.interleaved_runs, 0.5),
    Term(copies.padded, 0.5),
    Term(copies.padded_parts, 0.3),
    Term(copies.packed, 0.3),
    Term(copies.packed_at_root, 0.9),
    Term(copies.packed_elementwise, 1.0),
    Term(copies.packed_elementwise_at_root, 0.7),
    Term(compute.register_spills, 1.7),
    Term(compute.kept_operand_spills, 1.5),
    Term(compute.adjacent_broadcasts, 0.05),
    Term(compute.shuffles, 1.0),
    Term(compute.gathered, 0.5),
    Term(compute.scattered_stores, 1.0),
    Term(compute.vector_stores, 0.5),
    Term(compute.lane_reductions, 2.5),
    Term(compute.libm, LIBM_CYCLES),
    Term(compute.polynomial, POLYNOMIAL_CYCLES),
    Term(memory.set_conflicts, 10.0),
    Term(compute.broadcast_streams, 0.1),
    Term(compute.border_checks, 0.1),
    Term(compute.border_checks_2d, 0.5),
    Term(compute.accumulator_spills_at_border, 0.2),
)
TERM_NAMES = tuple(term.name for term in TERMS)
ROUND_COSTS = np.array([term.cycles for term in TERMS])


def cycles(table: NestTable, work: NestWork, target: Target) -> Floats:
    """Units of each term under each config, shape (len(TERMS), n)."""
    kernel = KernelCounts(table=table, work=work, target=target)
    counts = np.empty((len(TERMS), len(work.bodies)), np.float32)
    for row, term in enumerate(TERMS):
        counts[row] = term.units(kernel)
    return counts
