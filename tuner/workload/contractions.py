"""Catalogue operators that multiply and add: matrix products, convolutions, attention.

Each reduction is one stage whose body is a plain product.
"""

from __future__ import annotations

from tuner.workload.operator import ACTIVATIONS, MAX_EXTENT, Operator, Param

FLOAT = ("float32", "float64", "float16", "bfloat16")
ARITHMETIC = (*FLOAT, "int8", "int32")


def extents(**axes: tuple[str, int]) -> tuple[Param, ...]:
    """A parameter for each axis, from its description and the extent a form suggests for it."""
    return tuple(
        Param(name=name, kind="extent", about=about, usual=usual)
        for name, (about, usual) in axes.items()
    )


def options(**params: tuple[str, int]) -> tuple[Param, ...]:
    """An integer parameter for each name, from its description and the most it may be; 0 is
    what it is where it is not given."""
    return tuple(
        Param(name=name, kind="int", about=about, default=0, most=most)
        for name, (about, most) in params.items()
    )


def dtype(*choices: str) -> Param:
    return Param(
        name="dtype", kind="choice", about="of the inputs", default="float32", choices=choices
    )


def layout(first: str, second: str) -> Param:
    return Param(
        name="layout", kind="choice", about="of X and Y", default=first, choices=(first, second)
    )


def flag(name: str, about: str, default: bool = False) -> Param:
    return Param(name=name, kind="bool", about=about, default=default)


STRIDE = Param(name="stride", kind="int", about="step of the window", default=1, least=1)
PAD = Param(name="pad", kind="int", about="zeros on each side", default=0)
DILATION = Param(
    name="dilation", kind="int", about="distance between the kernel's elements", default=1, least=1
)
GROUPS = Param(
    name="groups",
    kind="int",
    about="groups of channels convolved apart",
    default=1,
    least=1,
    most=2**20,
)
BIAS = flag("bias", "add a bias per output channel")
ACT = Param(
    name="act",
    kind="choice",
    about="activation of the result",
    default="none",
    choices=tuple(ACTIVATIONS),
)
WINDOW = (STRIDE, PAD, DILATION, GROUPS)
SIZES = {
    name: f"(({extent} + 2*pad - dilation*({kernel} - 1) - 1) // stride + 1)"
    for name, extent, kernel in (("OD", "D", "KD"), ("OH", "H", "KH"), ("OW", "W", "KW"))
}
AT = {
    name: f"stride*{o} + dilation*{r} - pad"
    for name, o, r in (("z", "d", "q"), ("y", "h", "r"), ("x", "w", "s"))
}
CHANNEL = "@{groups=1|c|k // (CO // groups) * (CI // groups) + c}"

MATMUL = Operator(
    name="matmul",
    about="C = A B",
    result="C",
    dtypes=ARITHMETIC,
    params=(
        *extents(M=("rows of C", 512), N=("columns of C", 512), K=("length of the sums", 512)),
        flag("transpose_a", "A is K×M"),
        flag("transpose_b", "B is N×K"),
        dtype(*ARITHMETIC),
    ),
    program="""
kernel matmul(A: @{dtype}[@{transpose_a|K, M|M, K}], B: @{dtype}[@{transpose_b|N, K|K, N}]) -> (C: @{sum}[M, N]) {
  C[i, j] += A[@{transpose_a|k, i|i, k}] * B[@{transpose_b|j, k|k, j}]
}""",  # noqa: E501
)
BATCH_MATMUL = Operator(
    name="batch_matmul",
    about="C[b] = A[b] B[b]",
    result="C",
    dtypes=ARITHMETIC,
    params=(
        *extents(
            B=("batch", 1),
            M=("rows of C", 512),
            N=("columns of C", 512),
            K=("length of the sums", 512),
        ),
        flag("transpose_a", "A is B×K×M"),
        flag("transpose_b", "B is B×N×K"),
        dtype(*ARITHMETIC),
    ),
    program="""
kernel batch_matmul(A: @{dtype}[B, @{transpose_a|K, M|M, K}], B: @{dtype}[B, @{transpose_b|N, K|K, N}]) -> (C: @{sum}[B, M, N]) {
  C[b, i, j] += A[b, @{transpose_a|k, i|i, k}] * B[b, @{transpose_b|j, k|k, j}]
}""",  # noqa: E501
)
DENSE = Operator(
    name="dense",
    about="Y = act(X Wᵀ + bias)",
    channel="j",
    dtypes=ARITHMETIC,
    params=(
        *extents(M=("rows of X", 512), N=("units", 512), K=("features", 512)),
        BIAS,
        ACT,
        dtype(*ARITHMETIC),
    ),
    pieces={"at": "i, j"},
    program="""
kernel dense(X: @{dtype}[M, K], W: @{dtype}[N, K]@{bias|, bias: @{sum}[N]|}) -> (Y: @{sum}[M, N]) {
  @{main}[i, j] += X[i, k] * W[j, k]
  @{epilogue}
}""",
)
CONV1D = Operator(
    name="conv1d",
    about="convolution over one axis",
    channel="k",
    dtypes=ARITHMETIC,
    params=(
        *extents(
            N=("batch", 1),
            W=("width", 56),
            CI=("input channels", 64),
            CO=("output channels", 64),
            KW=("kernel width", 3),
        ),
        *WINDOW,
        layout("NWC", "NCW"),
        BIAS,
        ACT,
        dtype(*ARITHMETIC),
    ),
    pieces={**SIZES, **AT, "channel": CHANNEL, "at": "@{layout=NWC|n, w, k|n, k, w}"},
    divides=(("groups", "CI"), ("groups", "CO")),
    windows=(("W", "KW"),),
    program="""
kernel conv1d(X: @{dtype}[@{layout=NWC|N, W, CI|N, CI, W}], W: @{dtype}[@{layout=NWC|KW, CI//groups, CO|CO, CI//groups, KW}]
    @{bias|, bias: @{sum}[CO]|}) -> (Y: @{sum}[@{layout=NWC|N, @{OW}, CO|N, CO, @{OW}}]) {
  @{main}[@{at}] += (X[@{layout=NWC|n, @{x}, @{channel}|n, @{channel}, @{x}}] else 0)
    * W[@{layout=NWC|s, c, k|k, c, s}] for w in 0:@{OW}
  @{epilogue}
}""",  # noqa: E501
)
CONV2D = Operator(
    name="conv2d",
    about="convolution over two axes; weights HWIO for NHWC, OIHW for NCHW",
    channel="k",
    dtypes=ARITHMETIC,
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
        BIAS,
        ACT,
        dtype(*ARITHMETIC),
    ),
    pieces={**SIZES, **AT, "channel": CHANNEL, "at": "@{layout=NHWC|n, h, w, k|n, k, h, w}"},
    divides=(("groups", "CI"), ("groups", "CO")),
    windows=(("H", "KH"), ("W", "KW")),
    program="""
kernel conv2d(X: @{dtype}[@{layout=NHWC|N, H, W, CI|N, CI, H, W}],
    W: @{dtype}[@{layout=NHWC|KH, KW, CI//groups, CO|CO, CI//groups, KH, KW}]@{bias|, bias: @{sum}[CO]|})
    -> (Y: @{sum}[@{layout=NHWC|N, @{OH}, @{OW}, CO|N, CO, @{OH}, @{OW}}]) {
  @{main}[@{at}] += (X[@{layout=NHWC|n, @{y}, @{x}, @{channel}|n, @{channel}, @{y}, @{x}}] else 0)
    * W[@{layout=NHWC|r, s, c, k|k, c, r, s}] for h in 0:@{OH}, w in 0:@{OW}
  @{epilogue}
}""",  # noqa: E501
)
CONV3D = Operator(
    name="conv3d",
    about="convolution over three axes; weights DHWIO for NDHWC, OIDHW for NCDHW",
    channel="k",
    dtypes=ARITHMETIC,
    params=(
        *extents(
            N=("batch", 1),
            D=("depth", 16),
            H=("height", 56),
            W=("width", 56),
            CI=("input channels", 64),
            CO=("output channels", 64),
            KD=("kernel depth", 3),
            KH=("kernel height", 3),
            KW=("kernel width", 3),
        ),
        *WINDOW,
        layout("NDHWC", "NCDHW"),
        BIAS,
        ACT,
        dtype(*ARITHMETIC),
    ),
    pieces={**SIZES, **AT, "channel": CHANNEL, "at": "@{layout=NDHWC|n, d, h, w, k|n, k, d, h, w}"},
    divides=(("groups", "CI"), ("groups", "CO")),
    windows=(("D", "KD"), ("H", "KH"), ("W", "KW")),
    program="""
kernel conv3d(X: @{dtype}[@{layout=NDHWC|N, D, H, W, CI|N, CI, D, H, W}],
    W: @{dtype}[@{layout=NDHWC|KD, KH, KW, CI//groups, CO|CO, CI//groups, KD, KH, KW}]@{bias|, bias: @{sum}[CO]|})
    -> (Y: @{sum}[@{layout=NDHWC|N, @{OD}, @{OH}, @{OW}, CO|N, CO, @{OD}, @{OH}, @{OW}}]) {
  @{main}[@{at}] += (X[@{layout=NDHWC|n, @{z}, @{y}, @{x}, @{channel}|n, @{channel}, @{z}, @{y}, @{x}}] else 0)
    * W[@{layout=NDHWC|q, r, s, c, k|k, c, q, r, s}] for d in 0:@{OD}, h in 0:@{OH}, w in 0:@{OW}
  @{epilogue}
}""",  # noqa: E501
)
CONV2D_TRANSPOSE = Operator(
    name="conv2d_transpose",
    about="transposed convolution: X spread out by stride, then convolved with the kernel "
    "turned round",
    channel="k",
    dtypes=ARITHMETIC,
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
        STRIDE,
        Param(
            name="pad",
            kind="int",
            about="rows and columns cut off each side of the result",
            default=0,
        ),
        layout("NHWC", "NCHW"),
        BIAS,
        ACT,
        dtype(*ARITHMETIC),
    ),
    pieces={
        "OH": "((H - 1)*stride + KH - 2*pad)",
        "OW": "((W - 1)*stride + KW - 2*pad)",
        "at": "@{layout=NHWC|n, h, w, k|n, k, h, w}",
        "y": "h + r + pad + 1 - KH",
        "x": "w + s + pad + 1 - KW",
    },
    program="""
kernel conv2d_transpose(X: @{dtype}[@{layout=NHWC|N, H, W, CI|N, CI, H, W}],
    W: @{dtype}[@{layout=NHWC|KH, KW, CI, CO|CO, CI, KH, KW}]
    @{bias|, bias: @{sum}[CO]|}) -> (Y: @{sum}[@{layout=NHWC|N, @{OH}, @{OW}, CO|N, CO, @{OH}, @{OW}}]) {
  @{stride=1||S[@{layout=NHWC|n, y, x, c|n, c, y, x}] = where(y % stride == 0 and x % stride == 0,
    X[@{layout=NHWC|n, y//stride, x//stride, c|n, c, y//stride, x//stride}], 0)
    for y in 0:(H - 1)*stride + 1, x in 0:(W - 1)*stride + 1}
  @{main}[@{at}] += (@{stride=1|X|S}[@{layout=NHWC|n, @{y}, @{x}, c|n, c, @{y}, @{x}}] else 0)
    * W[@{layout=NHWC|KH - 1 - r, KW - 1 - s, c, k|k, c, KH - 1 - r, KW - 1 - s}]
    for h in 0:@{OH}, w in 0:@{OW}, r in 0:KH, s in 0:KW
  @{epilogue}
}""",  # noqa: E501
)
DEPTHWISE_CONV2D = Operator(
    name="depthwise_conv2d",
    about="each channel with its own kernel; weights KH×KW×C×1 for NHWC, C×1×KH×KW for NCHW",
    channel="c",
    dtypes=ARITHMETIC,
    params=(
        *extents(
            N=("batch", 1),
            H=("height", 56),
            W=("width", 56),
            C=("channels", 64),
            KH=("kernel height", 3),
            KW=("kernel width", 3),
        ),
        STRIDE,
        PAD,
        DILATION,
        layout("NHWC", "NCHW"),
        BIAS,
        ACT,
        dtype(*ARITHMETIC),
    ),
    pieces={**SIZES, **AT, "at": "@{layout=NHWC|n, h, w, c|n, c, h, w}"},
    windows=(("H", "KH"), ("W", "KW")),
    program="""
kernel depthwise_conv2d(X: @{dtype}[@{layout=NHWC|N, H, W, C|N, C, H, W}], W: @{dtype}[@{layout=NHWC|KH, KW, C, 1|C, 1, KH, KW}]
    @{bias|, bias: @{sum}[C]|}) -> (Y: @{sum}[@{layout=NHWC|N, @{OH}, @{OW}, C|N, C, @{OH}, @{OW}}]) {
  @{main}[@{at}] += (X[@{layout=NHWC|n, @{y}, @{x}, c|n, c, @{y}, @{x}}] else 0) * W[@{layout=NHWC|r, s, c, 0|c, 0, r, s}]
    for h in 0:@{OH}, w in 0:@{OW}
  @{epilogue}
}""",  # noqa: E501
)
ATTENTION = Operator(
    name="attention",
    about="softmax(Q Kᵀ / √D) V, scaled dot products",
    result="O",
    dtypes=FLOAT,
    params=(
        *extents(B=("batch", 1), H=("heads", 8), S=("sequence length", 128), D=("head size", 64)),
        flag("causal", "a position sees itself and earlier ones"),
        *options(
            HKV=("heads of K and V, each shared by H / HKV of Q; 0 for H", MAX_EXTENT),
            SK=("positions of K and V, whose last is that of the last query; 0 for S", MAX_EXTENT),
            DV=("width of V; 0 for D", MAX_EXTENT),
            window=("positions that one sees, its own and those before; 0 for all", MAX_EXTENT),
            softcap=("c of the soft cap c tanh(x / c) of scores x; 0 for none", 4096),
        ),
        Param(
            name="mask",
            kind="choice",
            about="a tensor M: `add` adds it to the scores, `keep` leaves those where it is not 0",
            default="none",
            choices=("none", "add", "keep"),
        ),
        dtype(*FLOAT),
    ),
    pieces={
        "queries": "@{dtype}[B, H, S, D]",
        "groups": "@{HKV=0|H|HKV}",
        "keys": "@{SK=0|S|SK}",
        "width": "@{DV=0|D|DV}",
        "shared": "@{HKV=0|h|h//(H//HKV)}",
        "place": "@{SK=0|i|i + (SK - S)}",
        "given": "@{mask=none||, M: @{mask=add|@{dtype}|u8}[B, S, @{keys}]}",
        "plain": "G[b, h, i, j] * (1 / sqrt(D))",
        "capped": "@{softcap=0|@{plain}|softcap * tanh(@{plain} / softcap)}",
        "score": "@{mask=add|@{capped} + M[b, i, j]|@{capped}}",
        "seen": "@{causal|where(j <= @{place}, @{score}, -inf)|@{score}}",
        "near": "@{window=0|@{seen}|where(j > @{place} - window, @{seen}, -inf)}",
        "kept": "@{mask=keep|where(M[b, i, j] != 0, @{near}, -inf)|@{near}}",
    },
    divides=(("HKV", "H"),),
    no_less=(("SK", "S"),),
    program="""
kernel attention(Q: @{queries}, K: @{dtype}[B, @{groups}, @{keys}, D], V: @{dtype}[B, @{groups}, @{keys}, @{width}]@{given}) -> (O: @{dtype}[B, H, S, @{width}]) {
  G[b, h, i, j] += Q[b, h, i, d] * K[b, @{shared}, j, d]
  L[b, h, i, j] = @{kept}
  R[b, h, i] max= L[b, h, i, j]
  E[b, h, i, j] = exp(L[b, h, i, j] - R[b, h, i])
  Z[b, h, i] += E[b, h, i, j]
  P[b, h, i, j] = E[b, h, i, j] / Z[b, h, i]
  O[b, h, i, d] += P[b, h, i, j] * V[b, @{shared}, j, d]
}""",  # noqa: E501
)
MLP = Operator(
    name="mlp",
    about="two layers, or with a gate three: act(X Uᵀ) Wᵀ, or (act(X Gᵀ) · X Uᵀ) Wᵀ",
    params=(
        *extents(M=("rows", 64), K=("features", 512), J=("hidden features", 2048)),
        *options(N=("features of the result; 0 for K", MAX_EXTENT)),
        flag("gate", "a gate multiplies the hidden layer, G is its weights"),
        flag("bias", "of each layer: bg, bu and bw"),
        Param(
            name="act",
            kind="choice",
            about="of the gate, or of the hidden layer without one",
            default="gelu",
            choices=tuple(ACTIVATIONS),
        ),
        dtype(*FLOAT),
    ),
    dtypes=FLOAT,
    pieces={
        "width": "@{N=0|K|N}",
        "first": "@{gate|G: @{dtype}[J, K], |}",
        "offsets": "@{bias|@{gate|, bg: @{dtype}[J]|}, bu: @{dtype}[J], bw: @{dtype}[@{width}]|}",
        "gated": "@{gate|A[i, j] += X[i, k] * G[j, k]|}",
        "plain": "@{bias|(T[i, j] + bu[j])|T[i, j]}",
        "argument": "@{gate|@{bias|(A[i, j] + bg[j])|A[i, j]}|@{plain}}",
        "result": "@{bias|S|Y}",
    },
    program="""
kernel mlp(X: @{dtype}[M, K], @{first}U: @{dtype}[J, K], W: @{dtype}[@{width}, J]@{offsets}) -> (Y: @{dtype}[M, @{width}]) {
  @{gated}
  T[i, j] += X[i, k] * U[j, k]
  H[i, j] = @{activation}@{gate| * @{plain}|}
  @{result}[i, n] += H[i, j] * W[n, j]
  @{bias|Y[i, n] = S[i, n] + bw[n]|}
}""",  # noqa: E501
)
