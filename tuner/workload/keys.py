"""The key of a workload: SHA-256 of the canonical JSON of its alpha-renamed tree.

Names of the kernel, of tensors, stages and iterators do not matter. Shapes, dtypes,
structure, facts about inputs, order of inputs and outputs, declared constants and
numerics do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256

from tuner.workload.expression import Axis, Expression, Scalar, Stage, Tensor, Var, rewrite
from tuner.workload.tree import Json, fact_document, scalar_document

KEY_SCHEMA = 1


def workload_key(
    expression: Expression, constants: Iterable[str] = (), numerics: str = "strict"
) -> str:
    """The key, 64 hexadecimal digits."""
    names = {tensor.name: f"x{number}" for number, tensor in enumerate(expression.inputs)}
    stages: list[Json] = []
    for number, stage in enumerate(expression.stages):
        stages.append(_stage(stage, names))
        names[stage.name] = f"t{number}"
    document: Json = {
        "schema": KEY_SCHEMA,
        "inputs": [
            [tensor.dtype, list(tensor.shape), *_facts(tensor)] for tensor in expression.inputs
        ],
        "stages": stages,
        "outputs": [names[name] for name in expression.outputs],
        "constants": list[Json](sorted(names[name] for name in constants)),
        "numerics": numerics,
    }
    return sha256(
        json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    ).hexdigest()


def _facts(tensor: Tensor) -> list[Json]:
    """What is declared of an input, and how trials draw it; mostly nothing."""
    return [] if tensor.fact is None else [fact_document(tensor.fact)]


def _stage(stage: Stage, names: dict[str, str]) -> Json:
    iterators = {
        axis.name: Var(f"i{number}")
        for number, axis in enumerate((*stage.axes, *stage.reduce_axes))
    }

    def renamed(node: Scalar) -> Scalar | None:
        return iterators.get(node.name) if isinstance(node, Var) else None

    body = scalar_document(rewrite(stage.body, renamed), names)
    return [
        stage.dtype,
        _extents(stage.axes),
        _extents(stage.reduce_axes),
        stage.reducer or "",
        stage.accumulator if stage.reducer else "",
        body,
    ]


def _extents(axes: tuple[Axis, ...]) -> list[Json]:
    return [axis.extent for axis in axes]
