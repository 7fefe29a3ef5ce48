"""What `tuner.tune` takes as a workload, and which arguments belong to which form."""

from __future__ import annotations

import pytest
from tvm import te

from tuner.app.workloads import as_workload
from tuner.errors import UsageError, WorkloadError
from tuner.workload.spec import parse_spec

NOTATION = """
# rows times columns
kernel mm(A: f32[M, K], B: f32[K, N]) -> (C: f32[M, N]) {
  C[i, j] += A[i, k] * B[k, j]
}
"""


def test_a_spec() -> None:
    assert (
        as_workload("matmul:M=8,N=8,K=8", shapes=None, constants=(), numerics="strict").op
        == "matmul"
    )


def test_a_spec_with_constants_and_numerics_is_that_of_the_command_line() -> None:
    made = as_workload("dense:M=8,N=8,K=8", shapes=None, constants=["W"], numerics="fast")
    assert made == parse_spec("dense:M=8,N=8,K=8,const=W,numerics=fast")


def test_a_notation_with_its_shapes() -> None:
    made = as_workload(NOTATION, shapes={"M": 4, "N": 5, "K": 6}, constants=(), numerics="strict")
    assert made.expression.tensor("C").shape == (4, 5)


def test_a_workload_is_taken_as_it_is() -> None:
    workload = parse_spec("matmul:M=8,N=8,K=8")
    assert as_workload(workload, shapes=None, constants=(), numerics="strict") is workload


def test_shapes_belong_to_the_notation() -> None:
    with pytest.raises(UsageError, match="shapes are the extents of a notation's symbols"):
        as_workload("matmul:M=8,N=8,K=8", shapes={"M": 8}, constants=(), numerics="strict")


def test_a_workload_has_its_own_numerics() -> None:
    with pytest.raises(UsageError, match="its own constants and numerics"):
        as_workload(parse_spec("matmul:M=8,N=8,K=8"), shapes=None, constants=(), numerics="fast")


def test_a_bad_notation_says_where() -> None:
    with pytest.raises(WorkloadError) as refused:
        as_workload(
            NOTATION.replace("A[i, k]", "Z[i, k]"),
            shapes={"M": 4, "N": 5, "K": 6},
            constants=(),
            numerics="strict",
        )
    assert (refused.value.line, refused.value.column) == (4, 14)


def test_te_tensors_are_the_workload_they_compute() -> None:
    a, b = te.placeholder((5, 7), name="A"), te.placeholder((7, 6), name="B")
    k = te.reduce_axis((0, 7), name="k")
    c = te.compute((5, 6), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    lifted = as_workload([a, b, c], shapes=None, constants=(), numerics="strict")
    assert lifted.key == parse_spec("matmul:M=5,N=6,K=7").key
    with pytest.raises(UsageError, match="shapes"):
        as_workload([a, b, c], shapes={"M": 5}, constants=(), numerics="strict")
