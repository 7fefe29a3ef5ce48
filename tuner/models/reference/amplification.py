"""How far rounding errors move the outputs of a graph.

A sum in another order may lie on the other side of a half, and so be quantised to the next
step; a difference of large numbers loses their digits. What deep networks, above all untrained
ones, make of that may be more than `tuner.models.reference.accuracy.tolerance_of`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tuner.models.graph import Array, Graph
from tuner.models.reference.accuracy import greatest_error
from tuner.models.reference.evaluation import evaluate_outputs
from tuner.workload.expression import Const, Expression, Scalar, rewrite
from tuner.workload.reference import SUM_FACTOR, UNIT_ROUNDOFF

# Error of a float32 sum of 256 terms in another order, relative to its value: a random walk.
_SUM_ERROR = 16 * UNIT_ROUNDOFF["float32"]
_DRAWS = 4
_MOST = 0.5  # what is wrong, rather than rounded otherwise, is further off


def allowed_error(graph: Graph, inputs: Sequence[Array], tolerance: float, error: float) -> float:
    """The tolerance, or what rounding errors cause for these inputs where `error` exceeds it."""
    return tolerance if error <= tolerance else max(tolerance, amplified(graph, inputs))


def amplified(graph: Graph, inputs: Sequence[Array]) -> float:
    """The greatest error of an output, relative to its greatest value, at most a half.

    All floats that nodes read, and with them the sums of each node, are moved by the
    rounding error of a sum, several times. Of the largest move of an output `SUM_FACTOR`
    times as much is allowed, as for the sums of `tuner.workload.reference.error_bound`.
    """
    rng = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        right = evaluate_outputs(graph, inputs)
        errors = [
            greatest_error(
                evaluate_outputs(
                    _moved_graph(graph, rng), [_moved(array, rng) for array in inputs]
                ),
                right,
            )
            for _ in range(_DRAWS)
        ]
    return min(SUM_FACTOR * max(errors), _MOST)


def _moved_graph(graph: Graph, rng: np.random.Generator) -> Graph:
    """The graph with other constants, also with those that nodes have as literals."""

    def change(part: Scalar) -> Scalar | None:
        if isinstance(part, Const) and part.dtype in ("float32", "float64"):
            return replace(part, value=float(part.value * _factors(rng, ())))
        return None

    nodes = tuple(
        replace(
            node,
            stages=tuple(replace(stage, body=rewrite(stage.body, change)) for stage in node.stages),
        )
        if isinstance(node, Expression)
        else node
        for node in graph.nodes
    )
    constants = {name: _moved(array, rng) for name, array in graph.constants.items()}
    return replace(graph, nodes=nodes, constants=constants)


def _moved(array: Array, rng: np.random.Generator) -> Array:
    if array.dtype not in (np.float32, np.float64):
        return array
    return (array * _factors(rng, array.shape)).astype(array.dtype)


def _factors(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.asarray(1 + _SUM_ERROR * rng.choice([-1.0, 1.0], shape))
