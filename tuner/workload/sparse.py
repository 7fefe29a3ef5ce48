"""Catalogue operators on compressed rows, lists of places, bags, segments and gathered rows.

Pointers P split the places into rows, J holds the column of each place. Patterns are part
of a call; `density`, `lengths` and `spread` say what trials run on.
"""

from __future__ import annotations

from typing import get_args

from tuner.workload.contractions import FLOAT, dtype, extents, flag
from tuner.workload.expression import Lengths, Spread
from tuner.workload.operator import Operator, Param

INDEX = Param(
    name="index", kind="choice", about="dtype of the pointers and indices", default="int32",
    choices=("int32", "int64"),
)  # fmt: skip
DENSITY = Param(
    name="density", kind="float", about="places as a share of the matrix' elements", default=0.01
)
LENGTHS = Param(
    name="lengths", kind="choice", about="of rows in trials: each place in any row, all alike, "
    "or a few long ones", default="uniform", choices=get_args(Lengths),
)  # fmt: skip
SPREAD = Param(
    name="spread", kind="choice", about="of columns in trials: any, near the diagonal, a few "
    "often, runs of 16 neighbours, or any in order", default="uniform", choices=get_args(Spread),
)  # fmt: skip
MATRIX = extents(M=("rows of the sparse matrix", 4096), N=("its columns", 4096))
PATTERN = (DENSITY, LENGTHS, SPREAD, INDEX, dtype(*FLOAT))
COMPRESSED = (
    "P: @{index}[M + 1] splits E @{lengths}, J: @{index}[E] in 0:N @{spread}, A: @{dtype}[E]"
)

SPMV = Operator(
    name="spmv",
    about="y = A x, A in compressed rows (CSR)",
    params=(*MATRIX, *PATTERN),
    places=("M", "N"),
    pieces={"matrix": COMPRESSED},
    program="""
kernel spmv(@{matrix}, X: @{dtype}[N]) -> (Y: @{dtype}[M]) {
  Y[i] += A[e] * X[J[e]] for e in P[i]:P[i + 1]
}""",
)
SPMM = Operator(
    name="spmm",
    about="Y = A X, A in compressed rows (CSR), X dense",
    params=(*MATRIX, *extents(K=("columns of X", 64)), *PATTERN),
    places=("M", "N"),
    pieces={"matrix": COMPRESSED},
    program="""
kernel spmm(@{matrix}, X: @{dtype}[N, K]) -> (Y: @{dtype}[M, K]) {
  Y[i, k] += A[e] * X[J[e], k] for e in P[i]:P[i + 1]
}""",
)
SDDMM = Operator(
    name="sddmm",
    about="the elements of A Bᵀ at the places of a sparse matrix (COO): row R[e], column J[e]",
    params=(
        *MATRIX,
        *extents(K=("columns of A and B", 64)),
        *(param for param in PATTERN if param is not LENGTHS),
    ),
    places=("M", "N"),
    program="""
kernel sddmm(R: @{index}[E] in 0:M sorted, J: @{index}[E] in 0:N @{spread},
    A: @{dtype}[M, K], B: @{dtype}[N, K]) -> (Y: @{dtype}[E]) {
  Y[e] += A[R[e], k] * B[J[e], k]
}""",
)
EMBEDDING_BAG = Operator(
    name="embedding_bag",
    about="sums, means or weighted sums of rows of a table; bag b has the indices from P[b] to "
    "P[b + 1] of J",
    params=(
        *extents(
            V=("rows of the table", 100_000),
            D=("row length", 64),
            B=("bags", 256),
            L=("indices of a bag on average", 32),
        ),
        Param(
            name="mode",
            kind="choice",
            about="what a bag gives; an empty one gives 0",
            default="sum",
            choices=("sum", "mean", "weighted"),
        ),
        LENGTHS,
        SPREAD,
        INDEX,
        dtype(*FLOAT),
    ),
    program="""
kernel embedding_bag(P: @{index}[B + 1] splits B*L @{lengths}, J: @{index}[B*L] in 0:V @{spread},
    @{mode=weighted|A: @{dtype}[B*L], |}W: @{dtype}[V, D]) -> (Y: @{dtype}[B, D]) {
  @{mode=mean|S|Y}[b, d] += @{mode=weighted|A[e] * |}W[J[e], d] for e in P[b]:P[b + 1]
  @{mode=mean|Y[b, d] = S[b, d] / max(@{wide}(P[b + 1] - P[b]), 1) for b in 0:B|}
}""",
)
SEGMENT_REDUCE = Operator(
    name="segment_reduce",
    about="segments of rows reduced to one row each; segment i has the rows from P[i] to P[i + 1]",
    params=(
        *extents(M=("segments", 1024), N=("rows", 16384), D=("row length", 64)),
        Param(
            name="mode",
            kind="choice",
            about="what a segment gives; an empty one gives 0, -inf (max) or inf (min)",
            default="sum",
            choices=("sum", "mean", "max", "min"),
        ),
        LENGTHS,
        INDEX,
        dtype(*FLOAT),
    ),
    pieces={"reducer": "@{mode=max|max=|@{mode=min|min=|+=}}"},
    program="""
kernel segment_reduce(P: @{index}[M + 1] splits N @{lengths}, X: @{dtype}[N, D])
    -> (Y: @{dtype}[M, D]) {
  @{mode=mean|S|Y}[i, d] @{reducer} X[e, d] for e in P[i]:P[i + 1]
  @{mode=mean|Y[i, d] = S[i, d] / max(@{wide}(P[i + 1] - P[i]), 1) for i in 0:M|}
}""",
)
SCATTER_ADD = Operator(
    name="scatter_add",
    about="rows added to the rows that indices name, in their order; the inverse of a gather",
    params=(
        *extents(M=("rows of Y", 4096), N=("rows of X", 16384), D=("row length", 64)),
        Param(
            name="mode",
            kind="choice",
            about="what a row gives; one that no index names gives 0, -inf (max) or inf (min)",
            default="sum",
            choices=("sum", "max", "min"),
        ),
        SPREAD,
        INDEX,
        dtype(*FLOAT),
    ),
    pieces={"reducer": "@{mode=max|max=|@{mode=min|min=|+=}}"},
    program="""
kernel scatter_add(J: @{index}[N] in 0:M @{spread}, X: @{dtype}[N, D]) -> (Y: @{dtype}[M, D]) {
  Y[J[n], d] @{reducer} X[n, d]
}""",
)
GATHER_MATMUL = Operator(
    name="gather_matmul",
    about="C = A[I] B, the rows of A chosen by indices",
    params=(
        *extents(
            V=("rows of A", 100_000),
            M=("rows of C", 1024),
            N=("columns of C", 256),
            K=("length of the sums", 128),
        ),
        flag("transpose_b", "B is N×K"),
        SPREAD,
        INDEX,
        dtype(*FLOAT),
    ),
    program="""
kernel gather_matmul(I: @{index}[M] in 0:V @{spread}, A: @{dtype}[V, K],
    B: @{dtype}[@{transpose_b|N, K|K, N}]) -> (C: @{dtype}[M, N]) {
  C[i, j] += A[I[i], k] * B[@{transpose_b|j, k|k, j}]
}""",
)
