"""Whether a nest writes its output through the caches or past them.

A line that is written through them is fetched first, and pushes out another. Where the
output is longer than they hold until somebody reads it, both are for nothing
(docs/spaces.md has the probes).
"""

from __future__ import annotations

from math import prod

from tuner.target.target import Target
from tuner.workload.expression import DTYPE_BYTES, Stage

CACHED, STREAMED = "cached", "streamed"


def store_values(output: Stage, vector: str | None, lanes: int, target: Target) -> tuple[str, ...]:
    """Values of the knob for an output that is written once, in vectors of `lanes`
    along the axis `vector`: past the caches only where it is longer than the second
    one, and each vector lies whole at a multiple of its length."""
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
    return (CACHED, STREAMED) if in_vectors and wide and size > target.l2_bytes else (CACHED,)
