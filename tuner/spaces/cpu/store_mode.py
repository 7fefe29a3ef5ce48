"""Whether a nest writes its output through the caches or past them.

A line that is written through them is fetched first, and evicts another. Where the
output is longer than they hold until somebody reads it, both are wasted, and
non-temporal stores are faster (docs/design-notes/0013 has the probes).
"""

from __future__ import annotations

from enum import Enum
from math import prod

from tuner.target.architectures.table import isa_of
from tuner.target.target import Target
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import Stage


class StoreMode(Enum):
    """The value is the word that configs store."""

    CACHED = "cached"
    NON_TEMPORAL = "streamed"


def store_modes(
    output: Stage, vector: str | None, lanes: int, target: Target
) -> tuple[StoreMode, ...]:
    """The modes worth trying for an output that is written once, in vectors of `lanes`
    elements along the axis `vector`.

    Non-temporal ones only where the output is longer than the second-level cache, and
    each vector lies whole at a multiple of its length.
    """
    moving = [axis for axis in output.axes if axis.extent > 1]
    in_vectors = (
        lanes > 1
        and moving[-1:] != []
        and moving[-1].name == vector
        and moving[-1].extent % lanes == 0
    )
    size = prod(axis.extent for axis in moving) * DTYPE_BYTES[output.dtype]
    # TVM stores narrow floats as integers, under pointers of another type.
    wide = output.dtype in ("float32", "float64")
    offered = isa_of(target).non_temporal_stores and in_vectors and wide
    if offered and size > target.l2_bytes:
        return (StoreMode.CACHED, StoreMode.NON_TEMPORAL)
    return (StoreMode.CACHED,)
