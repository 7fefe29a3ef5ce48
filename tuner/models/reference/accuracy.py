"""How far a model's outputs may be from the right ones, and how far they are.

Errors are relative to the greatest finite value of an output.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from tuner.models.arrays import Array
from tuner.models.graph import Graph
from tuner.models.nodes import Node, every_node, reads_of
from tuner.workload.dtypes import INTEGER_RANGES
from tuner.workload.expression import Cast, Const, Expression, Read, Scalar, walk
from tuner.workload.reference import SUM_FACTOR, UNIT_ROUNDOFF

TOLERANCE = 1e-4  # of a model that stores nothing in less than float32
# Below it an error within the tolerance may be one of subnormal numbers.
_LEAST_PEAK = float(np.finfo(np.float32).tiny) / TOLERANCE


def relative_error(got: Array, right: Array) -> float:
    """The largest error of one output, relative to the greatest finite value.

    Infinities and what is no number must be so on both sides, else the error is infinite.
    Outputs so small that float32 has lost digits of them count as larger.
    """
    a, b = got.astype(np.float64), right.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    peak = max(float(np.abs(b[np.isfinite(b)]).max(initial=0.0)), _LEAST_PEAK)
    return float(np.nan_to_num(apart, nan=np.inf).max(initial=0.0)) / peak


def greatest_error(got: Sequence[Array], right: Sequence[Array]) -> float:
    """The largest error of all outputs, each relative to its own greatest value."""
    return max(relative_error(a, b) for a, b in zip(got, right, strict=True))


def tolerance_of(graph: Graph) -> float:
    """The error that the graph's dtypes account for, at least TOLERANCE.

    A node that stores float16 or bfloat16 rounds its result by up to the unit roundoff u.
    One that quantises may be off by a step of the integers, which is 1/255 of the range of
    int8: a sum in another order lies on the other side of a half. Errors of the nodes
    along a path are a random walk, of which `SUM_FACTOR` standard deviations are allowed,
    as for the sums of `tuner.workload.reference.error_bound`.
    """
    variances: dict[str, float] = {}
    for node in graph.nodes:
        before = (variances.get(graph.root(name), 0.0) for name in _reads(node))
        variance = max(before, default=0.0) + _variance(node, graph)
        variances |= dict.fromkeys(node.outputs, variance)
    worst = max((variances.get(graph.root(name), 0.0) for name in graph.outputs), default=0.0)
    return max(TOLERANCE, SUM_FACTOR * math.sqrt(worst))


def _reads(node: Node) -> Iterator[str]:
    """Also what is read inside of it, perhaps under another shape."""
    return (name for inner in every_node([node]) for name in reads_of(inner))


def _variance(node: Node, graph: Graph) -> float:
    """The square of the relative error that the node's own roundings make."""
    if not isinstance(node, Expression):
        sums = (sum(_variance(inner, graph) for inner in body) for body in node.bodies)
        return node.repeats * max(sums)
    casts = (part for stage in node.stages for part in walk(stage.body) if isinstance(part, Cast))
    dtypes = [node.tensor(name).dtype for name in node.outputs] + [cast.dtype for cast in casts]
    return max(_step(node), *(_roundoff(dtype) for dtype in dtypes)) ** 2


def _roundoff(dtype: str) -> float:
    """Of a result in less than float32; wider ones are within TOLERANCE."""
    unit = UNIT_ROUNDOFF.get(dtype, 0.0)
    return unit if unit > UNIT_ROUNDOFF["float32"] else 0.0


def _step(node: Expression) -> float:
    """A step of the narrowest integers that the node converts floats to, relative to
    their range; 0 without such a conversion."""
    floats = {tensor.name for tensor in node.inputs if "float" in tensor.dtype}
    floats |= {stage.name for stage in node.stages if "float" in stage.dtype}
    steps = [0.0]
    for stage in node.stages:
        for part in walk(stage.body):
            if isinstance(part, Cast) and part.dtype in INTEGER_RANGES and _has_float(part, floats):
                # What was cast to int32 may be stored in less.
                ranges = [INTEGER_RANGES[d] for d in (part.dtype, stage.dtype) if "int" in d]
                steps.append(1 / min(high - low for low, high in ranges))
    return max(steps)


def _has_float(node: Scalar, floats: set[str]) -> bool:
    """Whether a scalar is computed from floats."""
    return any(
        (isinstance(part, Read) and part.tensor in floats)
        or (isinstance(part, Cast | Const) and "float" in part.dtype)
        for part in walk(node)
    )
