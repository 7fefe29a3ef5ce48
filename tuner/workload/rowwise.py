"""Catalogue operators other than contractions.

Pooling, softmax, normalisation, reductions, elementwise maps and gathers.
"""

from __future__ import annotations

from tuner.workload.contractions import (
    ACT,
    ARITHMETIC,
    FLOAT,
    PAD,
    SIZES,
    STRIDE,
    dtype,
    extents,
    flag,
    layout,
)
from tuner.workload.operator import FUNCTIONS, Operator, Param

EPS = Param(name="eps", kind="float", about="added to the variance", default=1e-5)
AXIS = Param(name="axis", kind="choice", about="reduced away", default=1, choices=(1, 0))
IMAGE = extents(N=("batch", 1), H=("height", 56), W=("width", 56), C=("channels", 64))
POOLED = (
    *IMAGE,
    *extents(KH=("window height", 3), KW=("window width", 3)),
    STRIDE,
    PAD,
    layout("NHWC", "NCHW"),
)
MATRIX = extents(M=("rows", 512), N=("columns", 512))
POOL_PIECES = {
    **{name: SIZES[name].replace("dilation*", "") for name in ("OH", "OW")},
    "y": "stride*h + r - pad",
    "x": "stride*w + s - pad",
    "at": "@{layout=NHWC|n, h, w, c|n, c, h, w}",
    "read": "@{layout=NHWC|n, @{y}, @{x}, c|n, c, @{y}, @{x}}",
    "image": "@{layout=NHWC|N, H, W, C|N, C, H, W}",
    "pooled": "@{layout=NHWC|N, @{OH}, @{OW}, C|N, C, @{OH}, @{OW}}",
    "over": "for h in 0:@{OH}, w in 0:@{OW}, r in 0:KH, s in 0:KW",
}

MAX_POOL2D = Operator(
    name="max_pool2d",
    about="greatest value of each window; padding never wins",
    dtypes=ARITHMETIC,
    params=(*POOLED, dtype(*ARITHMETIC)),
    pieces=POOL_PIECES,
    windows=(("H", "KH"), ("W", "KW")),
    pads_less_than_window=True,
    program="""
kernel max_pool2d(X: @{dtype}[@{image}]) -> (Y: @{dtype}[@{pooled}]) {
  Y[@{at}] max= X[@{read}] else @{lowest} @{over}
}""",
)
AVG_POOL2D = Operator(
    name="avg_pool2d",
    about="mean of each window; padding counts as zeros unless count_include_pad=false",
    params=(*POOLED, flag("count_include_pad", "divide by the whole window", True), dtype(*FLOAT)),
    pieces=POOL_PIECES,
    windows=(("H", "KH"), ("W", "KW")),
    pads_less_than_window=True,
    program="""
kernel avg_pool2d(X: @{dtype}[@{image}]) -> (Y: @{dtype}[@{pooled}]) {
  T[@{at}] += X[@{read}] else 0 @{over}
  @{count_include_pad||I[h, w] += where(@{y} >= 0 and @{y} < H and @{x} >= 0 and @{x} < W, @{wide}(1), 0) @{over}}
  Y[@{at}] = T[@{at}] @{count_include_pad|* (1 / (KH*KW))|/ I[h, w]}
}""",  # noqa: E501
)
GLOBAL_AVG_POOL2D = Operator(
    name="global_avg_pool2d",
    about="mean over height and width",
    params=(*IMAGE, layout("NHWC", "NCHW"), dtype(*FLOAT)),
    pieces=POOL_PIECES,
    program="""
kernel global_avg_pool2d(X: @{dtype}[@{image}]) -> (Y: @{dtype}[N, C]) {
  T[n, c] += X[@{at}]
  Y[n, c] = T[n, c] * (1 / (H*W))
}""",
)
SOFTMAX = Operator(
    name="softmax",
    about="over each row, the row's greatest value subtracted first",
    params=(*MATRIX, dtype(*FLOAT)),
    program="""
kernel softmax(X: @{dtype}[M, N]) -> (Y: @{dtype}[M, N]) {
  R[i] max= X[i, j]
  E[i, j] = exp(X[i, j] - R[i])
  Z[i] += E[i, j]
  Y[i, j] = E[i, j] / Z[i]
}""",
)
LOG_SOFTMAX = Operator(
    name="log_softmax",
    about="logarithm of softmax over each row, without forming it",
    params=(*MATRIX, dtype(*FLOAT)),
    program="""
kernel log_softmax(X: @{dtype}[M, N]) -> (Y: @{dtype}[M, N]) {
  R[i] max= X[i, j]
  Z[i] += exp(X[i, j] - R[i])
  Y[i, j] = X[i, j] - R[i] - log(Z[i])
}""",
)
LAYER_NORM = Operator(
    name="layer_norm",
    about="each row to mean 0 and variance 1, then gamma and beta; the variance from "
    "differences to the mean",
    params=(*MATRIX, EPS, dtype(*FLOAT)),
    program="""
kernel layer_norm(X: @{dtype}[M, N], gamma: @{dtype}[N], beta: @{dtype}[N]) -> (Y: @{dtype}[M, N]) {
  S[i] += X[i, j]
  U[i] = S[i] * (1 / N)
  V[i] += (X[i, j] - U[i]) * (X[i, j] - U[i])
  Q[i] = rsqrt(V[i] * (1 / N) + @{eps})
  Y[i, j] = (X[i, j] - U[i]) * Q[i] * gamma[j] + beta[j]
}""",
)
RMS_NORM = Operator(
    name="rms_norm",
    about="each row divided by its root mean square, then gamma",
    params=(*MATRIX, EPS, dtype(*FLOAT)),
    program="""
kernel rms_norm(X: @{dtype}[M, N], gamma: @{dtype}[N]) -> (Y: @{dtype}[M, N]) {
  S[i] += X[i, j] * X[i, j]
  Q[i] = rsqrt(S[i] * (1 / N) + @{eps})
  Y[i, j] = X[i, j] * Q[i] * gamma[j]
}""",
)
BATCH_NORM = Operator(
    name="batch_norm",
    about="inference: stored mean and variance per channel",
    params=(*IMAGE, layout("NHWC", "NCHW"), EPS, dtype(*FLOAT)),
    pieces=POOL_PIECES,
    program="""
kernel batch_norm(X: @{dtype}[@{image}], gamma: @{dtype}[C], beta: @{dtype}[C], mean: @{dtype}[C], var: @{dtype}[C])
    -> (Y: @{dtype}[@{image}]) {
  Q[c] = rsqrt(var[c] + @{eps}) * gamma[c]
  Y[@{at}] = (X[@{at}] - mean[c]) * Q[c] + beta[c]
}""",  # noqa: E501
)
REDUCE_SUM = Operator(
    name="reduce_sum",
    about="sums along one axis",
    dtypes=ARITHMETIC,
    params=(*MATRIX, AXIS, dtype(*ARITHMETIC)),
    program="""
kernel reduce_sum(X: @{dtype}[M, N]) -> (Y: @{sum}[@{axis=1|M|N}]) {
  Y[@{axis=1|i|j}] += X[i, j]
}""",
)
REDUCE_MAX = Operator(
    name="reduce_max",
    about="greatest values along one axis",
    dtypes=ARITHMETIC,
    params=(*MATRIX, AXIS, dtype(*ARITHMETIC)),
    program="""
kernel reduce_max(X: @{dtype}[M, N]) -> (Y: @{dtype}[@{axis=1|M|N}]) {
  Y[@{axis=1|i|j}] max= X[i, j]
}""",
)
REDUCE_MEAN = Operator(
    name="reduce_mean",
    about="means along one axis",
    params=(*MATRIX, AXIS, dtype(*FLOAT)),
    pieces={"at": "@{axis=1|i|j}"},
    program="""
kernel reduce_mean(X: @{dtype}[M, N]) -> (Y: @{dtype}[@{axis=1|M|N}]) {
  T[@{at}] += X[i, j]
  Y[@{at}] = T[@{at}] * (1 / @{axis=1|N|M})
}""",
)
TRANSPOSE = Operator(
    name="transpose",
    about="rows become columns",
    dtypes=ARITHMETIC,
    params=(*MATRIX, dtype(*ARITHMETIC)),
    program="""
kernel transpose(X: @{dtype}[M, N]) -> (Y: @{dtype}[N, M]) {
  Y[j, i] = X[i, j]
}""",
)
ELEMENTWISE = Operator(
    name="elementwise",
    about="one function of each element",
    dtypes=(*FLOAT, "int32"),
    pieces={"at": "i, j"},
    params=(
        *MATRIX,
        Param(name="act", kind="choice", about="the function", choices=tuple(FUNCTIONS)),
        dtype(*FLOAT, "int32"),
    ),
    program="""
kernel elementwise(X: @{dtype}[M, N]) -> (Y: @{dtype}[M, N]) {
  Y[i, j] = @{value}
}""",
)
BIAS_ACT = Operator(
    name="bias_act",
    about="act(X + bias), the bias per column",
    dtypes=(*FLOAT, "int32"),
    pieces={"at": "i, j"},
    params=(*MATRIX, ACT, dtype(*FLOAT, "int32")),
    program="""
kernel bias_act(X: @{dtype}[M, N], bias: @{dtype}[N]) -> (Y: @{dtype}[M, N]) {
  @{main}[i, j] = X[i, j] + bias[j]
  @{epilogue}
}""",
)
EMBEDDING = Operator(
    name="embedding",
    about="rows of a table by index; indices outside are clamped into it",
    dtypes=(*FLOAT, "int8", "int32"),
    params=(
        *extents(N=("indices", 512), V=("rows of the table", 1024), D=("row length", 64)),
        dtype(*FLOAT, "int8", "int32"),
    ),
    program="""
kernel embedding(X: int32[N], W: @{dtype}[V, D]) -> (Y: @{dtype}[N, D]) {
  Y[n, d] = W[clamp(X[n], 0, V - 1), d]
}""",
)
