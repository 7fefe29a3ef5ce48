"""Catalogue operators on integers of few bits: weights that are unpacked where they are used,
and products of bytes whose sums are rounded to bytes again."""

from __future__ import annotations

from tuner.workload.contractions import (
    ACT,
    AT,
    BIAS,
    CHANNEL,
    SIZES,
    WINDOW,
    dtype,
    extents,
    flag,
    layout,
)
from tuner.workload.operator import Operator, Param

BYTES = ("uint8", "int8")


def _bytes(name: str, about: str) -> Param:
    return Param(name=name, kind="choice", about=about, default="uint8", choices=BYTES)


def _zero(name: str, about: str) -> Param:
    return Param(name=name, kind="int", about=about, default=0, least=-128, most=255)


# What sums become: bytes, with scales of their own for each output channel. What zero points
# of the factors add to the sums is known ahead of the call and belongs to the bias.
REQUANTISATION = (
    _bytes("result", "dtype of Y"),
    _zero("y_zero", "zero point of Y"),
    flag("bias", "add a bias of int32 per output channel"),
    flag("relu", "leave out what lies below the zero point of Y"),
)
ROUNDED = {
    "bytes": "@{result=uint8|u8|i8}",
    "least": "@{relu|@{y_zero}|@{result=uint8|0|-128}}",
    "most": "@{result=uint8|255|127}",
}

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
QMATMUL = Operator(
    name="qmatmul",
    about="C = A B of bytes, scaled by column, rounded to even and saturated",
    result="C",
    dtypes=BYTES,
    params=(
        *extents(M=("rows of C", 512), N=("columns of C", 512), K=("length of the sums", 512)),
        _bytes("dtype", "dtype of A; B is int8"),
        *REQUANTISATION,
    ),
    pieces=ROUNDED,
    program="""
kernel qmatmul(A: @{dtype}[M, K], B: i8[K, N], S: f32[N]@{bias|, bias: i32[N]|}) -> (C: @{bytes}[M, N]) {
  P[i, j] += A[i, k] * B[k, j]
  C[i, j] = @{bytes}(clamp(round(f32(P[i, j]@{bias| + bias[j]|}) * S[j]) + (@{y_zero}), @{least}, @{most}))
}""",  # noqa: E501
)
QCONV2D = Operator(
    name="qconv2d",
    about="conv2d of bytes, scaled by output channel, rounded to even and saturated",
    channel="k",
    dtypes=BYTES,
    params=(
        *extents(
            N=("batch", 1),
            H=("height", 56),
            W=("width", 56),
            CI=("input channels", 64),
            CO=("output channels", 64),
            KH=("kernel height", 3),
            KW=("kernel width", 3),
        ),
        *WINDOW,
        layout("NHWC", "NCHW"),
        _bytes("dtype", "dtype of X; W is int8"),
        _zero("x_zero", "zero point of X, which surrounds it"),
        *REQUANTISATION,
    ),
    pieces={
        **SIZES,
        **AT,
        **ROUNDED,
        "channel": CHANNEL,
        "at": "@{layout=NHWC|n, h, w, k|n, k, h, w}",
    },
    divides=(("groups", "CI"), ("groups", "CO")),
    windows=(("H", "KH"), ("W", "KW")),
    program="""
kernel qconv2d(X: @{dtype}[@{layout=NHWC|N, H, W, CI|N, CI, H, W}],
    W: i8[@{layout=NHWC|KH, KW, CI//groups, CO|CO, CI//groups, KH, KW}], S: f32[CO]@{bias|, bias: i32[CO]|})
    -> (Y: @{bytes}[@{layout=NHWC|N, @{OH}, @{OW}, CO|N, CO, @{OH}, @{OW}}]) {
  P[@{at}] += (X[@{layout=NHWC|n, @{y}, @{x}, @{channel}|n, @{channel}, @{y}, @{x}}] else @{x_zero})
    * W[@{layout=NHWC|r, s, c, k|k, c, r, s}] for h in 0:@{OH}, w in 0:@{OW}
  Y[@{at}] = @{bytes}(clamp(round(f32(P[@{at}]@{bias| + bias[k]|}) * S[k]) + (@{y_zero}), @{least}, @{most}))
}""",  # noqa: E501
)
