"""Catalogue operators of layers that compute only chosen classes, and hashes that choose them.

Chen et al., "SLIDE: In Defense of Smart Algorithms over Hardware Acceleration for
Large-Scale Deep Learning Systems" (MLSys 2020).
"""

from __future__ import annotations

from tuner.workload.contractions import FLOAT, dtype, extents, flag
from tuner.workload.operator import Operator, Param
from tuner.workload.sparse import INDEX, SPREAD

TABLES = extents(B=("vectors", 128), D=("their length", 128), T=("hash tables", 50))

LAYER = extents(
    B=("samples", 128),
    D=("inputs of the layer", 128),
    C=("classes", 670_091),
    L=("active classes of a sample", 3350),
)
WEIGHTS = Param(
    name="dtype", kind="choice", about="of the weights; the other floats are float32",
    default="float32", choices=("float32", "bfloat16"),
)  # fmt: skip

SLIDE_LAYER = Operator(
    name="slide_layer",
    about="an output layer of which sample b computes the L classes J[b]: X Wᵀ + bias there",
    params=(
        *LAYER,
        flag("softmax", "the softmax over the active classes"),
        flag(
            "offset",
            "O is added to the logits: of a class that was drawn, minus the logarithm of its "
            "chance",
        ),
        SPREAD,
        INDEX,
        WEIGHTS,
    ),
    dtypes=("float32", "bfloat16"),
    program="""
kernel slide_layer(J: @{index}[B, L] in 0:C @{spread}, X: f32[B, D], W: @{dtype}[C, D],
    bias: f32[C]@{offset|, O: f32[B, L]|}) -> (Y: f32[B, L]) {
  Z[b, l] += X[b, d] * W[J[b, l], d]
  @{softmax|U|Y}[b, l] = Z[b, l] + bias[J[b, l]]@{offset| + O[b, l]|}
  @{softmax|M[b] max= U[b, l]|}
  @{softmax|E[b, l] = exp(U[b, l] - M[b])|}
  @{softmax|S[b] += E[b, l]|}
  @{softmax|Y[b, l] = E[b, l] / S[b]|}
}""",
)
SLIDE_LAYER_GRADIENT = Operator(
    name="slide_layer_gradient",
    about="from G of the logits of slide_layer: the gradient of X, or of active rows of W",
    params=(
        *LAYER,
        Param(
            name="A",
            kind="extent",
            about="different active classes of all samples, at most",
            default=16384,
        ),
        Param(
            name="of",
            kind="choice",
            about="whose gradient; row a of W has the places from P[a] to P[a + 1] of samples R",
            default="inputs",
            choices=("inputs", "weights"),
        ),
        SPREAD,
        INDEX,
        WEIGHTS,
    ),
    dtypes=("float32", "bfloat16"),
    pieces={
        "samples": "J: @{index}[B, L] in 0:C @{spread}, G: f32[B, L], W: @{dtype}[C, D]",
        "of_rows": "Y[a, d] += G[e] * X[R[e], d] for e in P[a]:P[a + 1]",
        "of_samples": "Y[b, d] += G[b, l] * W[J[b, l], d]",
        "rows": "P: @{index}[A + 1] splits B*L, R: @{index}[B*L] in 0:B @{spread}, "
        "G: f32[B*L], X: f32[B, D]",
    },
    program="""
kernel slide_layer_gradient(@{of=weights|@{rows}|@{samples}})
    -> (Y: f32[@{of=weights|A|B}, D]) {
  @{of=weights|@{of_rows}|@{of_samples}}
}""",
)
SIMHASH = Operator(
    name="simhash",
    about="K bits of each of T tables: the signs of X R, summed in float64 to be exact",
    params=(
        *TABLES,
        Param(name="K", kind="int", about="bits of a table", default=9, least=1, most=31),
        dtype(*FLOAT),
    ),
    program="""
kernel simhash(X: @{dtype}[B, D], R: @{dtype}[D, T*K]) -> (Y: i32[B, T]) {
  S[b, h] += f64(X[b, d]) * f64(R[d, h])
  Y[b, t] += where(S[b, K*t + k] >= 0, shl(i32(1), i32(k)), 0) for t in 0:T, k in 0:K
}""",
)
DWTA_HASH = Operator(
    name="dwta_hash",
    about="densified winner-take-all: of 8 elements I[h] the place of the greatest but 0",
    params=(
        *TABLES,
        Param(name="K", kind="int", about="codes of a table", default=6, least=1, most=10),
        Param(
            name="F",
            kind="int",
            about="other codes, O[h], of which the first counts that "
            "has an element, where all 8 are 0",
            default=8,
            least=1,
            most=64,
        ),
        INDEX,
        dtype(*FLOAT),
    ),
    pieces={"element": "X[b, I[h, s]]"},
    program="""
kernel dwta_hash(I: @{index}[T*K, 8] in 0:D, O: @{index}[T*K, F] in 0:T*K, X: @{dtype}[B, D])
    -> (Y: i32[B, T]) {
  V[b, h] max= where(@{element} != 0, @{element}, -inf)
  C[b, h] min= where(@{element} != 0 and @{element} == V[b, h], i32(s), 8)
  N[b, h] min= where(C[b, O[h, f]] < 8, i32(f), F)
  H[b, h] = C[b, h] < 8 or N[b, h] == F ? C[b, h] : C[b, O[h, clamp(N[b, h], 0, F - 1)]]
  Y[b, t] += shl(bitand(H[b, K*t + k], 7), i32(3*k)) for t in 0:T, k in 0:K
}""",
)
