"""Terms of the instructions that a core issues: arithmetic, loads, registers, functions."""

from __future__ import annotations

import numpy as np

from tuner.cost_model.arrays import Floats
from tuner.cost_model.cpu.terms.counts import KernelCounts

# Accumulators for each unit that hide a latency of four cycles: just so, and with some to spare.
ENOUGH_CHAINS, PLENTY_CHAINS = 4.0, 6.0
# Loads begin to count where they take 1 / 1.3 = 77% of the cycles of the arithmetic. A round
# number from the first version of the estimate, with no probe behind it. What a unit of
# the term costs is learned (calibration.py); where the term begins is not.
CONTENTION = 1.3
FREE_BROADCASTS = 6.0  # in one step, before their addresses cost more than their loads


def arithmetic(kernel: KernelCounts) -> Floats:
    """Multiply-adds at full rate, in cycles. Half of what other terms count overlaps with them."""
    return kernel.arithmetic


def operand_loads(kernel: KernelCounts) -> Floats:
    """Loads beyond those that a body's arithmetic hides, in cycles of the load ports.

    Matrix registers wait for their rows, so that their arithmetic hides none.
    """
    hidden = kernel.multiply_adds if kernel.in_vectors else 0.0
    cycles: Floats = kernel.work.bodies * np.maximum(
        kernel.work.operands.total / kernel.table.isa.load_ports - hidden / kernel.fma_units, 0
    )
    return cycles


def port_pressure(kernel: KernelCounts) -> Floats:
    """Loads that nearly fill their ports, in cycles beyond those of the arithmetic."""
    cycles: Floats = (
        kernel.in_vectors
        * kernel.work.bodies
        * np.maximum(
            CONTENTION * kernel.work.operands.total / kernel.table.isa.load_ports
            - kernel.multiply_adds / kernel.fma_units,
            0,
        )
    )
    return cycles


def accumulator_latency(kernel: KernelCounts) -> Floats:
    """Cycles that units wait because too few accumulators hide the latency of an addition."""
    return _waiting(kernel, ENOUGH_CHAINS)


def latency_margin(kernel: KernelCounts) -> Floats:
    """As `accumulator_latency`, against the accumulators that hide it with some to spare."""
    return _waiting(kernel, PLENTY_CHAINS)


def _waiting(kernel: KernelCounts, chains: float) -> Floats:
    missing = np.maximum(chains - kernel.work.accumulators / kernel.fma_units, 0)
    cycles: Floats = kernel.reduces * kernel.work.steps * missing
    return cycles


def loop(kernel: KernelCounts) -> Floats:
    """Runs of the innermost body, each a comparison and a jump."""
    return kernel.work.bodies


def accumulator_setup(kernel: KernelCounts) -> Floats:
    """Times that accumulators are set up and addresses computed."""
    return kernel.lives


def write_back(kernel: KernelCounts) -> Floats:
    """Vectors of accumulators written to memory."""
    vectors: Floats = kernel.reduces * kernel.lives * kernel.work.accumulators
    return vectors


def partial_sums(kernel: KernelCounts) -> Floats:
    """Vectors of accumulators added to what an earlier reduction block left in memory."""
    vectors: Floats = (
        kernel.reduces
        * kernel.work.lives
        * kernel.work.accumulators
        * (1.0 - kernel.in_registers_between_blocks)
        * (kernel.reduction_blocks > 1)
    )
    return vectors


def loads(kernel: KernelCounts) -> Floats:
    """All loads and prefetches, hidden or not, in cycles of the load ports."""
    table, work = kernel.table, kernel.work
    points = (
        work.steps
        if table.reductions and not table.is_rows
        else np.float32(table.axes.points / work.lanes)
    )
    prefetches = points * kernel.prefetches
    cycles: Floats = (work.bodies * work.operands.total + prefetches) / kernel.table.isa.load_ports
    return cycles


def register_spills(kernel: KernelCounts) -> Floats:
    """Registers that a step needs beyond those of the target, once for each step."""
    excess = np.maximum(kernel.work.registers_needed - kernel.target.vector_registers, 0)
    spills: Floats = kernel.in_vectors * kernel.reduces * kernel.work.steps * excess
    return spills


def kept_operand_spills(kernel: KernelCounts) -> Floats:
    """As `register_spills`, where an unrolled body keeps operands that it uses again."""
    work = kernel.work
    kept = work.operands.kept
    excess = np.maximum(work.registers_needed + kept - kernel.target.vector_registers, 0)
    spills: Floats = kernel.in_vectors * kernel.reduces * work.bodies * excess * (kept > 0)
    return spills


def adjacent_broadcasts(kernel: KernelCounts) -> Floats:
    """Elements broadcast one by one although a body also uses their neighbours in memory."""
    elements: Floats = kernel.work.bodies * kernel.work.operands.adjacent
    return elements


def shuffles(kernel: KernelCounts) -> Floats:
    """Shuffles that make vectors of elements a few places apart."""
    instructions: Floats = kernel.work.bodies * kernel.work.operands.shuffles
    return instructions


def gathered(kernel: KernelCounts) -> Floats:
    """Elements of vectors that are loaded one by one."""
    elements: Floats = kernel.work.bodies * kernel.work.operands.gathered
    return elements


def broadcast_streams(kernel: KernelCounts) -> Floats:
    """Elements broadcast in one step beyond those whose addresses cost nothing."""
    streams: Floats = kernel.work.bodies * np.maximum(
        kernel.work.operands.broadcasts / kernel.work.steps_per_body - FREE_BROADCASTS, 0
    )
    return streams


def scattered_stores(kernel: KernelCounts) -> Floats:
    """Elements stored one by one."""
    return kernel.work.scattered


def vector_stores(kernel: KernelCounts) -> Floats:
    """Vectors stored whole."""
    vectors: Floats = (kernel.work.written - kernel.work.scattered) / kernel.work.lanes
    return vectors


def lane_reductions(kernel: KernelCounts) -> Floats:
    """Halvings of vectors of partial results, until one result of a row is left."""
    table = kernel.table
    halvings: Floats = (
        kernel.nest.computed
        / table.axes.extents[table.spatial :].prod()
        * np.log2(kernel.work.lanes)
        * table.is_rows
    )
    return halvings


def libm(kernel: KernelCounts) -> Floats:
    """Calls of a transcendental function of the C library."""
    return kernel.libm_calls


def polynomial(kernel: KernelCounts) -> Floats:
    """Vectors for which a transcendental function is a polynomial."""
    return kernel.polynomial_vectors


def border_checks(kernel: KernelCounts) -> Floats:
    """Vectors loaded after a comparison of their position with a tensor's border."""
    checks: Floats = kernel.work.bodies * kernel.work.border_checks
    return checks


def border_checks_2d(kernel: KernelCounts) -> Floats:
    """Of `border_checks`, those of two dimensions, where the compiler merges fewer."""
    checks: Floats = kernel.work.bodies * kernel.work.border_checks_2d
    return checks


def accumulator_spills_at_border(kernel: KernelCounts) -> Floats:
    """Accumulators stored and loaded around a comparison with a border.

    As compiled for a depthwise tile of 8 by 3: with more than half of the registers in
    use (docs/design-notes/0004).
    """
    excess = np.maximum(kernel.work.accumulators - kernel.target.vector_registers / 2, 0)
    spills: Floats = kernel.work.bodies * kernel.work.border_checks * excess
    return spills
