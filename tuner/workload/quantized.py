"""Catalogue operators on weights of few bits, which are unpacked where they are used."""

from __future__ import annotations

from tuner.workload.contractions import ACT, BIAS, dtype, extents
from tuner.workload.operator import Operator, Param

QDENSE = Operator(
    name="qdense",
    about="dense of weights of 4 bits, low half first, or 8, with scales of groups",
    channel="j",
    dtypes=("float32",),
    params=(
        *extents(M=("rows of X", 1), N=("units", 4096), K=("features", 4096)),
        Param(
            name="weight",
            kind="choice",
            about="of W and Z; int4 holds w + 8, uint4 has zero points Z",
            default="int4",
            choices=("int4", "uint4", "int8"),
        ),
        Param(
            name="zeros",
            kind="choice",
            about="of uint4: zero points of 4 bits, packed as W is, or any numbers",
            default="uint4",
            choices=("uint4", "float32"),
        ),
        Param(
            name="activations",
            kind="choice",
            about="what X is rounded to before the product: int8 by the greatest of a group",
            default="float32",
            choices=("float32", "int8"),
        ),
        Param(
            name="group",
            kind="int",
            about="features that share a scale; 0: all of a unit",
            default=32,
            most=65536,
        ),
        BIAS,
        ACT,
        dtype("float32"),
    ),
    pieces={
        "at": "i, j",
        "GROUPS": "@{group=0|1|(K + group - 1)//group}",
        "number": "@{group=0|0|k//group}",
        "low": "f32(bitand(shr(W[j, k//2], i32(4 * (k % 2))), 15))",
        "few": "f32(bitand(shr(Z[j, @{number} // 2], i32(4 * (@{number} % 2))), 15))",
        "zero": "@{zeros=uint4|@{few}|Z[j, @{number}]}",
        "Z": "@{zeros=uint4|u8[N, (@{GROUPS} + 1)//2]|f32[N, @{GROUPS}]}",
        # A group below 1e-30 is zero: 127 divided by less may be infinite.
        "length": "@{group=0|K|group}",
        "rounded": """A[i, g] max= abs(X[i, g*@{length} + l] else 0)
    for g in 0:@{GROUPS}, l in 0:@{length}
  Q[i, k] = i8(clamp(round(X[i, k] * where(A[i, @{number}] < 1e-30, 0, 127 / A[i, @{number}])),
    -127, 127))""",
        "x": "@{activations=float32|X[i, k]|f32(Q[i, k])}",
        "step": "@{activations=float32|| * (A[i, @{number}] * (1 / 127))}",
        # Where one scale is of all features, bytes are summed as integers.
        "product": "@{group=0|@{weight=int8|@{of_bytes}|@{x} * @{real}}|@{x} * @{real}}",
        "of_bytes": "@{activations=int8|Q[i, k] * W[j, k]|@{x} * @{real}}",
        "whole": "@{weight=int8|@{activations=int8|f32(P[i, j])|P[i, j]}|P[i, j]}",
        "real": "@{weight=int8|f32(W[j, k])|(@{low} - @{weight=int4|8|@{zero}})}",
    },
    program="""
kernel qdense(X: f32[M, K], W: @{weight=int8|i8[N, K]|u8[N, (K + 1)//2]}, S: f32[N, @{GROUPS}]
    @{weight=uint4|, Z: @{Z}|}@{bias|, bias: f32[N]|}) -> (Y: f32[M, N]) {
  @{activations=int8|@{rounded}|}
  @{group=0|P|@{main}}[i, j] += @{product}@{group=0|| * S[j, @{number}]@{step}}
  @{group=0|@{main}[i, j] = @{whole} * S[j, 0]@{step}|}
  @{epilogue}
}""",
)
