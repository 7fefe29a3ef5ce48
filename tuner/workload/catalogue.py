"""The catalogue: the operators that users call by name, in one table.

Each operator is a program in the notation.
"""

from __future__ import annotations

from collections.abc import Mapping

from tuner.errors import WorkloadError
from tuner.workload import contractions, quantized, rowwise, slide, sparse
from tuner.workload.grammar import suggestion
from tuner.workload.operator import Operator

CATALOGUE: tuple[Operator, ...] = (
    contractions.MATMUL,
    contractions.BATCH_MATMUL,
    contractions.DENSE,
    contractions.CONV1D,
    contractions.CONV2D,
    contractions.CONV3D,
    contractions.CONV2D_TRANSPOSE,
    contractions.DEPTHWISE_CONV2D,
    rowwise.MAX_POOL2D,
    rowwise.AVG_POOL2D,
    rowwise.GLOBAL_AVG_POOL2D,
    rowwise.SOFTMAX,
    rowwise.LOG_SOFTMAX,
    rowwise.LAYER_NORM,
    rowwise.RMS_NORM,
    rowwise.BATCH_NORM,
    rowwise.REDUCE_SUM,
    rowwise.REDUCE_MAX,
    rowwise.REDUCE_MEAN,
    rowwise.TRANSPOSE,
    rowwise.ELEMENTWISE,
    rowwise.BIAS_ACT,
    quantized.QDENSE,
    quantized.QMATMUL,
    quantized.QCONV2D,
    contractions.ATTENTION,
    contractions.MLP,
    rowwise.EMBEDDING,
    sparse.EMBEDDING_BAG,
    sparse.SEGMENT_REDUCE,
    sparse.SPMV,
    sparse.SPMM,
    sparse.SDDMM,
    sparse.SCATTER_ADD,
    sparse.GATHER_MATMUL,
    slide.SLIDE_LAYER,
    slide.SLIDE_LAYER_GRADIENT,
    slide.SIMHASH,
    slide.DWTA_HASH,
)
OPERATORS: Mapping[str, Operator] = {operator.name: operator for operator in CATALOGUE}


def operator(name: str) -> Operator:
    """The operator of that name.

    Raises `WorkloadError` (parameter "op") with the closest name for an unknown one.
    """
    if name not in OPERATORS:
        names = list(OPERATORS)
        message = (
            f"unknown operator {name[:60]!r}{suggestion(name, names)}; known are {', '.join(names)}"
        )
        raise WorkloadError(message, parameter="op")
    return OPERATORS[name]
