"""Terms of copies: elements moved before a nest reads them."""

from __future__ import annotations

from tuner.cost_model.arrays import Floats
from tuner.cost_model.cpu.terms.counts import KernelCounts


def padded(kernel: KernelCounts) -> Floats:
    """Elements copied with their border, all at once."""
    return kernel.work.copies.padded


def padded_parts(kernel: KernelCounts) -> Floats:
    """Elements copied with their border, one part at a time."""
    return kernel.work.copies.padded_parts


def packed(kernel: KernelCounts) -> Floats:
    """Elements packed where they are used, repeats included."""
    return kernel.work.copies.packed


def packed_at_root(kernel: KernelCounts) -> Floats:
    """Elements packed before all loops."""
    return kernel.work.copies.packed_at_root


def packed_elementwise(kernel: KernelCounts) -> Floats:
    """Of `packed`, elements moved one by one."""
    return kernel.work.copies.packed_elementwise


def packed_elementwise_at_root(kernel: KernelCounts) -> Floats:
    """Of `packed_at_root`, elements moved one by one."""
    return kernel.work.copies.packed_elementwise_at_root
