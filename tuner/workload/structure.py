"""Well-formedness of expressions that come from documents or lifted programs."""

from __future__ import annotations

from tuner.errors import WorkloadError
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import Bitcast, Expression, Read, Stage, Tensor, Var, walk
from tuner.workload.facts import fact_error


def check_structure(expression: Expression) -> None:
    """Check names, ranks and the order of stages.

    Raises `WorkloadError` naming the stage at fault.
    """
    tensors: dict[str, Tensor] = {}
    for tensor in expression.inputs:
        if tensor.name in tensors:
            raise WorkloadError(f"input {tensor.name!r} is declared twice")
        if any(extent < 1 for extent in tensor.shape):
            raise WorkloadError(
                f"input {tensor.name!r} has shape {list(tensor.shape)}; extents are at least 1"
            )
        if error := fact_error(tensor):
            raise WorkloadError(f"input {tensor.name!r}: {error}")
        tensors[tensor.name] = tensor
    for stage in expression.stages:
        if stage.name in tensors:
            raise WorkloadError(f"stage {stage.name!r} defines a tensor that already exists")
        _check_stage(stage, tensors)
        tensors[stage.name] = stage.tensor
    if not expression.inputs or not expression.outputs:
        raise WorkloadError("an expression has at least one input and one output")
    for name in expression.outputs:
        if name not in {stage.name for stage in expression.stages}:
            raise WorkloadError(f"output {name!r} is not defined by a stage")


def _check_stage(stage: Stage, tensors: dict[str, Tensor]) -> None:
    iterators = [axis.name for axis in (*stage.axes, *stage.reduce_axes)]
    if len(set(iterators)) < len(iterators):
        raise WorkloadError(f"stage {stage.name!r} names an iterator twice")
    if not stage.axes or any(axis.extent < 1 for axis in (*stage.axes, *stage.reduce_axes)):
        raise WorkloadError(
            f"stage {stage.name!r} needs at least one axis, and extents of at least 1"
        )
    if (stage.reducer is None) != (not stage.reduce_axes):
        raise WorkloadError(
            f"stage {stage.name!r} has a reducer without reduction axes, or axes without a reducer"
        )
    if stage.reducer is not None and stage.accumulator == "bool":
        raise WorkloadError(
            f"stage {stage.name!r} reduces conditions by {stage.reducer}; make numbers of them, "
            f"e.g. where(condition, 1, 0)"
        )
    for node in walk(stage.body):
        if isinstance(node, Var) and node.name not in iterators:
            raise WorkloadError(
                f"stage {stage.name!r} uses {node.name!r}, which is not an iterator of it"
            )
        if isinstance(node, Bitcast) and DTYPE_BYTES.get(node.dtype, 1) != DTYPE_BYTES[node.source]:
            raise WorkloadError(
                f"stage {stage.name!r} takes the bits of {node.source} for {node.dtype}, which "
                f"is not as wide"
            )
        if isinstance(node, Read) and node.tensor not in tensors:
            raise WorkloadError(f"stage {stage.name!r} reads {node.tensor!r} before it is defined")
        if isinstance(node, Read) and len(node.indices) != len(tensors[node.tensor].shape):
            raise WorkloadError(
                f"stage {stage.name!r} reads {node.tensor!r} with {len(node.indices)} indices"
            )
