"""Terms of the estimate for GPUs: what each value of a knob adds to a kernel's time.

A term is a number of units, each of which costs so many doublings of the time. Units are
relative to the device: shares of its shared memory and multiprocessors, bytes against
its rates. So costs that one GPU taught mean the same on another.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from math import ceil, log2, prod

import numpy as np
from numpy.typing import NDArray

from tuner.cost_model.cuda.rates import GpuRates, gpu_rates
from tuner.spaces.cuda.block_shapes import (
    BlockShape,
    FragmentTile,
    PatchShape,
    RowShape,
    TileShape,
    WarpgroupTile,
)
from tuner.spaces.cuda.copy_mode import SharedCopy
from tuner.spaces.cuda.facts import ComputeUnit, KernelFacts
from tuner.spaces.cuda.limits import Footprint, block_shared_bytes
from tuner.spaces.cuda.pipelining import Overlap, Pipelining
from tuner.spaces.program.persistent import COLUMNS, ROWS, PersistentTile
from tuner.spaces.rewrite.algorithm import Algorithm
from tuner.spaces.rewrite.groups import RowGroup, TileGroup
from tuner.target.cuda import REGISTERS_PER_BLOCK
from tuner.target.target import Target
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import reads

Floats = NDArray[np.float64]
Units = Mapping[str, float]  # of terms by name; of others none

# Doublings of the time for each unit, chosen by hand on kernels that an H200 measured
# (docs/design-notes/0019); persistent's by docs/design-notes/0034. Those of 0 are for a
# history to find.
ROUND_COSTS: Mapping[str, float] = {
    # beside the best kernels of `mma`; warpgroups' is the mean of a product's (-0.8) and a
    # convolution's (-1.8), from which persistent products are 0.4 away
    "without_tensor_cores": 3.0,
    "tensor_ratio": 1.0,  # doublings between this device's and the measured one's
    "warpgroups": -1.3,
    "specialized_warpgroups": -1.7,
    "algorithm": 1.0,  # doublings between the best of another algorithm and of its own
    "operand_not_shared": 1.0,
    "narrow_copy": 0.1,
    "no_overlap": 0.5,
    "overlap_by_registers": 0.2,  # on tensor cores
    "rows_not_padded": 0.3,
    "tile_threads": 0.1,  # doublings away from 256; and so on
    "tile_operands": 0.8,  # that a thread reads for each of its products
    "tile_depth": 0.2,
    "tile_registers": 0.25,  # beyond what lets two blocks of 256 threads in
    "map_accumulators": 0.1,
    "map_lanes": -0.1,
    "fragment_rows": 0.4,
    "fragment_columns": 0.4,
    "fragment_depth": 0.2,
    "fragment_warps": 0.2,
    "warpgroup_rows": 0.2,
    "warpgroup_columns": 0.2,
    "warpgroup_count": 0.2,
    "warpgroup_stages": 0.1,
    "persistent_traffic": 0.3,  # of copies for each multiplication, beside the largest tile's
    "persistent_overlap": -0.1,  # of stores with multiplications
    "persistent_single": 0.5,  # one consumer
    "persistent_sums": 0.1,  # that leave few registers
    "persistent_stages": 0.15,  # that four have more
    "patch_threads": 0.1,
    "patch_lanes": -0.1,
    "row_threads": 0.1,
    "row_count": 0.1,
    "row_lanes": -0.1,
    "shared_share": 0.0,  # of a block's shared memory, that it takes
    "idle_multiprocessors": 0.0,  # doublings by which the last blocks lengthen a call
    "traffic": 0.0,  # doublings by which operands' bytes lengthen the multiplications
}
TERM_NAMES = tuple(ROUND_COSTS)
COSTS: Floats = np.array(list(ROUND_COSTS.values()))
FRAGMENT = 16  # rows and columns of a warp's fragment
_PLACES = {name: place for place, name in enumerate(TERM_NAMES)}


# Constants of a device, which say by how much its other shares count.
DEVICE_NAMES = ("multiply_adds_per_byte", "tensor_ratio", "multiprocessors", "block_shared_bytes")


def device_constants(target: Target) -> NDArray[np.float32]:
    """Logarithms of the device's constants (`DEVICE_NAMES`), shape (D,)."""
    rates = gpu_rates(target)
    constants = (
        rates.multiply_adds_per_s / rates.bytes_per_s,
        rates.tensor_ratio,
        target.cores,
        block_shared_bytes(target),
    )
    logs: NDArray[np.float32] = np.log2(np.array(constants)).astype(np.float32)
    return logs


def row_of(units: Units) -> Floats:
    """Units of every term, shape (T,)."""
    row = np.zeros(len(TERM_NAMES))
    for name, count in units.items():
        row[_PLACES[name]] = count
    return row


def priced(units: Floats) -> Floats:
    """Doublings of each row of units at round costs, shape (n,).

    Summed one term after another: rows of the same doublings are equal to the last bit.
    """
    return reduce(np.add, (units * COSTS).T)


def unit_terms(unit: ComputeUnit, *, has_tensor_cores: bool, ratio: float) -> Units:
    """Of a sketch's best kernels beside those of tensor cores.

    `has_tensor_cores`: whether its group could use them; `ratio`: of their rate to that of
    CUDA cores, over the ratio of the GPU that was measured.
    """
    match unit:
        case ComputeUnit.CUDA_CORES if has_tensor_cores:
            return {"without_tensor_cores": 1.0, "tensor_ratio": log2(ratio)}
        case ComputeUnit.WARPGROUPS:
            return {"warpgroups": 1.0}
        case ComputeUnit.SPECIALIZED_WARPGROUPS:
            return {"specialized_warpgroups": 1.0}
        case _:
            return {}


def copy_terms(mode: SharedCopy | None) -> Units:
    if mode is None:
        return {"operand_not_shared": 1.0}
    return {"narrow_copy": 1.0} if mode.width == 1 else {}


def pipelining_terms(unit: ComputeUnit, way: Pipelining) -> Units:
    match way.overlap:
        case Overlap.NONE:
            return {"no_overlap": 1.0}
        case Overlap.REGISTERS if unit is ComputeUnit.TENSOR_CORES:
            return {"overlap_by_registers": 1.0}
        case _:
            return {}


def padding_terms(padded: bool) -> Units:
    return {} if padded else {"rows_not_padded": 1.0}


def block_terms(shape: BlockShape, footprint: Footprint) -> Units:
    """Of what a block computes, whatever the device."""
    match shape:
        case TileShape():
            return _tile_terms(shape, footprint)
        case RowShape():
            return {
                "row_threads": _away(shape.rows * shape.threads, 256),
                "row_count": log2(shape.rows),
                "row_lanes": log2(shape.lanes),
            }
        case FragmentTile():
            rows, columns = _sides(shape)
            return {
                "fragment_rows": _away(rows, 128),
                "fragment_columns": _away(columns, 128),
                "fragment_depth": _away(shape.depth, 32),
                "fragment_warps": _away(shape.warps, 4),
            }
        case WarpgroupTile():
            rows, columns = _sides(shape)
            return {
                "warpgroup_rows": _away(rows, 128),
                "warpgroup_columns": _away(columns, 128),
                "warpgroup_count": _away(shape.warpgroups, 2),
                "warpgroup_stages": abs(shape.stages - 3),
            }
        case PersistentTile():
            brought = (shape.rows + shape.columns) / (shape.rows * shape.columns)
            return {
                "persistent_traffic": log2(brought * 128 * 256 / (128 + 256)),
                "persistent_overlap": float(shape.alternating),
                "persistent_single": float(shape.consumers == 1),
                "persistent_sums": float(shape.accumulators > 128),
                "persistent_stages": max(4 - shape.stages, 0),
            }
        case PatchShape():
            return {
                "patch_threads": _away(prod(shape.threads), 256),
                "patch_lanes": log2(shape.lanes),
            }


def _tile_terms(tile: TileShape, footprint: Footprint) -> Units:
    threads = {"tile_threads": _away(tile.threads, 256)}
    if tile.depth is None:
        return threads | {
            "map_accumulators": _away(tile.accumulators, 8),
            "map_lanes": log2(tile.lanes),
        }
    return threads | {
        "tile_operands": tile.operands / tile.accumulators,
        "tile_depth": _away(tile.depth, 16),
        "tile_registers": max(0.0, log2(footprint.registers * 2 * 256 / REGISTERS_PER_BLOCK)),
    }


def device_terms(
    facts: KernelFacts,
    shape: BlockShape,
    footprint: Footprint,
    algorithm: Algorithm,
    target: Target,
    rates: GpuRates,
) -> Units:
    """Of what a block takes of the device."""
    blocks = _points(facts, algorithm, shape) / prod(_sides(shape))
    rounds = blocks / target.cores
    return {
        "shared_share": footprint.shared_bytes / block_shared_bytes(target),
        "idle_multiprocessors": log2(ceil(rounds) / rounds),
        "traffic": _traffic(facts, shape, rates, algorithm),
    }


def _points(facts: KernelFacts, algorithm: Algorithm, shape: BlockShape) -> int:
    """What the blocks of a group's kernel share: rows, or elements of the output."""
    group = next(group for group in algorithm.groups if group.name == facts.group)
    if isinstance(group, RowGroup) and isinstance(shape, RowShape):
        return prod(axis.extent for axis in group.rows)
    return prod(algorithm.shapes[group.name])


def _traffic(facts: KernelFacts, shape: BlockShape, rates: GpuRates, algorithm: Algorithm) -> float:
    """log2 of the time of multiplying with that of copying the operands, over the former,
    at the rates of tensor cores or CUDA cores and of memory. 0 of what is no sum."""
    group = next(group for group in algorithm.groups if group.name == facts.group)
    if not isinstance(group, TileGroup) or group.anchor.reducer is None:
        return 0.0
    rows, columns = _sides(shape)
    operands = [read.tensor for read in reads(group.anchor.body)]
    itemsize = max((DTYPE_BYTES[algorithm.dtypes[name]] for name in operands), default=4)
    terms_per_s = (
        rates.multiply_adds_per_s
        if facts.unit is ComputeUnit.CUDA_CORES
        else rates.tensor_multiply_adds_per_s
    )
    nbytes = itemsize * (rows + columns) / (rows * columns)
    return log2(1.0 + nbytes * terms_per_s / rates.bytes_per_s)


def _sides(shape: BlockShape) -> tuple[int, int]:
    """Rows and columns of the output that a block computes; of a row's elements one."""
    match shape:
        case TileShape():
            *outer, last = (1, *(split.block for split in shape.axes))
            return prod(outer), last
        case RowShape():
            return shape.rows, 1
        case FragmentTile():
            return (
                shape.rows.warps * shape.rows.fragments * FRAGMENT,
                shape.columns.warps * shape.columns.fragments * FRAGMENT,
            )
        case WarpgroupTile():
            return shape.down * shape.fragments * ROWS, shape.across * shape.panels * COLUMNS
        case PersistentTile():
            return shape.rows, shape.columns
        case PatchShape():
            return prod(shape.threads), shape.lanes


def _away(count: int, best: int) -> float:
    """Doublings between a count and the best one."""
    return abs(log2(count / best))
