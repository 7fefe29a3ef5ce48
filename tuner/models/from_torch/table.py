"""The core ATen operators (https://docs.pytorch.org/docs/stable/torch.compiler_ir.html) as
programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tuner.models.from_torch.call import Call, Convert, Results
from tuner.models.operators import contraction, indexing, movement, normalization, pooling, resize
from tuner.models.operators import elementwise as maps
from tuner.models.operators import reduction as reductions
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.scalars import Elem, maximum, minimum, unary, where
from tuner.models.operators.values import Value
from tuner.workload.expression import Binary, BinaryOp, DType, Reducer, UnaryOp
from tuner.workload.terms import FLOATS

# --- elementwise


def each(function: Callable[[Elem], Elem]) -> Convert:
    return lambda call: elementwise(call.op, function, call.value("self", call.dtype))


def named(op: UnaryOp) -> Convert:
    return each(partial(unary, op))


def pair(function: Callable[[Elem, Elem], Elem]) -> Convert:
    """Of `self` and `other` in the result's dtype, `other` times `alpha`."""

    def convert(call: Call) -> Value:
        alpha = call.get("alpha", 1)

        def body(a: Elem, b: Elem) -> Elem:
            return function(a, b if alpha == 1 else b * alpha)

        left, right = call.value("self", call.dtype), call.value("other", call.dtype)
        return elementwise(call.op, body, left, right)

    return convert


def compared(function: Callable[[Elem, Elem], Elem]) -> Convert:
    def convert(call: Call) -> Value:
        left, right = _common(call, "self", "other")
        return elementwise(call.op, function, left, right, dtype="bool")

    return convert


def _common(call: Call, *names: str) -> list[Value]:
    """Tensors as values of one dtype: that of the widest tensor, or float for a number that
    is one."""
    tensors = [call[name] for name in names if isinstance(call[name], Value)]
    numbers = [call[name] for name in names if not isinstance(call[name], Value)]
    dtype: DType = max((value.dtype for value in tensors), key=_width)
    if dtype not in FLOATS and any(isinstance(number, float) for number in numbers):
        dtype = "float32"
    return [call.value(name, dtype) for name in names]


_WIDTHS: Sequence[DType] = (
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "bfloat16",
    "float16", "float32", "float64",
)  # fmt: skip


def _width(dtype: DType) -> int:
    return _WIDTHS.index(dtype)


def truth(function: Callable[..., Elem]) -> Convert:
    """Of arguments that count as true where they are not 0."""

    def convert(call: Call) -> Value:
        values = [call.value(name, "bool") for name in ("self", "other") if name in call.arguments]
        return elementwise(call.op, function, *values, dtype="bool")

    return convert


def bits(op: BinaryOp) -> Convert:
    """Of integers; of bools as they count."""

    def convert(call: Call) -> Value:
        left, right = call.value("self", call.dtype), call.value("other", call.dtype)
        if call.dtype == "bool":
            return elementwise(call.op, _BOOLEAN[op], left, right, dtype="bool")
        return elementwise(
            call.op, lambda a, b: Elem(Binary(op, a.node, b.node), a.dtype), left, right
        )

    return convert


_BOOLEAN: Mapping[BinaryOp, Callable[[Elem, Elem], Elem]] = {
    "bitand": lambda a, b: a & b,
    "bitor": lambda a, b: a | b,
    "xor": lambda a, b: a.differs(b),
}


def inverted(call: Call) -> Value:
    x = call.value("self")
    if x.dtype == "bool":
        return elementwise(call.op, lambda a: ~a, x, dtype="bool")
    return elementwise(call.op, lambda a: -a - 1, x)


def tested(function: Callable[[Elem], Elem]) -> Convert:
    return lambda call: elementwise(call.op, function, call.value("self"), dtype="bool")


def divide(call: Call) -> Value:
    mode = call.get("rounding_mode")
    left, right = call.value("self", call.dtype), call.value("other", call.dtype)
    if mode is None:
        return elementwise("div", lambda a, b: a / b, left, right)
    if mode == "trunc":
        return elementwise("div", _truncated, left, right)
    return elementwise("div", _floored, left, right)


def _truncated(a: Elem, b: Elem) -> Elem:
    return unary("trunc", a / b) if a.dtype in FLOATS else maps.divide(a, b)


def _floored(a: Elem, b: Elem) -> Elem:
    """Floats as Python divides them: the multiple of b below a, over b."""
    if a.dtype in FLOATS:
        rest = maps.truncated_remainder(a, b)
        whole = unary("round", (a - rest) / b)
        opposite = rest.differs(0) & (rest < 0).differs(b < 0)
        return where(b.equals(0), a / b, where(opposite, whole - 1, whole))
    return a // where(b.equals(0), 1, b)


def power(call: Call) -> Value:
    return elementwise(
        "pow", maps.power, call.value("self", call.dtype), call.value("exponent", call.dtype)
    )


def clamped(call: Call) -> Value:
    low, high = call.get("min", call.get("min_val")), call.get("max", call.get("max_val"))
    names = [name for name in ("min", "max") if isinstance(call.get(name), Value)]

    def body(e: Elem, *limits: Elem) -> Elem:
        bounds = dict(zip(names, limits, strict=True))
        if low is not None:
            e = maximum(e, bounds.get("min", low))
        if high is not None:
            e = minimum(e, bounds.get("max", high))
        return e

    values = [call.value(name, call.dtype) for name in names]
    return elementwise(call.op, body, call.value("self", call.dtype), *values)


def cast(call: Call) -> Value:
    return maps.cast(call.value("self"), call.dtype)


def same(call: Call) -> Value:
    return call.value("self")


def select_where(call: Call) -> Value:
    condition = call.value("condition", "bool")
    then, other = call.value("self", call.dtype), call.value("other", call.dtype)
    return elementwise("where", where, condition, then, other, dtype=call.dtype)


def gelu(call: Call) -> Value:
    tanh = call.get("approximate", "none") == "tanh"
    return elementwise("gelu", maps.gelu_tanh if tanh else maps.gelu, call.value("self"))


def elu(call: Call) -> Value:
    alpha, scale = call.get("alpha", 1.0), call.get("scale", 1.0)
    return elementwise("elu", lambda e: maps.elu(e, alpha, scale), call.value("self"))


def leaky_relu(call: Call) -> Value:
    slope = call.get("negative_slope", 0.01)
    return elementwise("leaky_relu", lambda e: maps.leaky_relu(e, slope), call.value("self"))


def hard(function: Callable[[Elem], Elem]) -> Convert:
    return lambda call: elementwise(call.op, function, call.value("self"))


# --- movement


def view(call: Call) -> Value:
    return movement.reshape(call.value("self"), call.shape)


def permute(call: Call) -> Value:
    x = call.value("self")
    return movement.transpose(x, [axis % x.rank for axis in call["dims"]])


def expand(call: Call) -> Value:
    return movement.expand(call.value("self"), call.shape)


def take_slice(call: Call) -> Value:
    x = call.value("self")
    axis = call.get("dim", 0) % x.rank
    start, step = call.get("start") or 0, call.get("step", 1)
    first = slice(start, call.get("end"), step).indices(x.shape[axis])[0]
    return movement.along(x, axis, first, call.shape[axis], step)


def select(call: Call) -> Value:
    x = call.value("self")
    axis = call["dim"] % x.rank
    place = call["index"] % x.shape[axis]
    return movement.reshape(movement.along(x, axis, place, 1), call.shape)


def cat(call: Call) -> Value:
    values = [maps.cast(value, call.dtype) for value in call["tensors"] if value.elements]
    return movement.concatenate(values, call.get("dim", 0) % values[0].rank)


def split(call: Call) -> list[Value]:
    x = call.value("self")
    axis = call.get("dim", 0) % x.rank
    return list(movement.split(x, axis, [shape[axis] for shape in call.shapes]))


def padded(call: Call) -> Value:
    x, widths = call.value("self"), call["pad"]
    before, after = [0] * x.rank, [0] * x.rank
    for place in range(len(widths) // 2):
        before[-1 - place], after[-1 - place] = widths[2 * place], widths[2 * place + 1]
    return movement.pad(x, before, after, "constant", call.get("value", 0))


def padded_by(mode: str) -> Convert:
    def convert(call: Call) -> Value:
        x, widths = call.value("self"), call["padding"]
        before, after = [0] * x.rank, [0] * x.rank
        for place in range(len(widths) // 2):
            before[-1 - place], after[-1 - place] = widths[2 * place], widths[2 * place + 1]
        return movement.pad(x, before, after, mode)

    return convert


def repeat(call: Call) -> Value:
    x, times = call.value("self"), call["repeats"]
    x = movement.reshape(x, [*(1,) * (len(times) - x.rank), *x.shape])
    return movement.tile(x, times)


def flip(call: Call) -> Value:
    x = call.value("self")
    for axis in call["dims"]:
        x = movement.flip(x, axis % x.rank)
    return x


def roll(call: Call) -> Value:
    x = call.value("self")
    for shift, axis in zip(call["shifts"], call["dims"], strict=True):
        x = movement.roll(x, shift, axis % x.rank)
    return x


def triangle(upper: bool) -> Convert:
    return lambda call: movement.triangle(call.value("self"), call.get("diagonal", 0), upper=upper)


def fill(call: Call) -> Value:
    return movement.expand(call.builder.constant(call["value"], call.dtype), call.shape)


def full(call: Call) -> Value:
    return movement.expand(call.builder.constant(call["fill_value"], call.dtype), call.shape)


# --- indices


def embedding(call: Call) -> Value:
    return indexing.gather(call.value("weight"), call.value("indices"), 0)


def index_select(call: Call) -> Value:
    return indexing.gather(call.value("self"), call.value("index"), call["dim"])


def gather(call: Call) -> Value:
    return indexing.gather_elements(call.value("self"), call.value("index"), call["dim"])


def index(call: Call) -> Value:
    """NumPy's indexing by tensors of integers, which are broadcast together; their
    dimensions stand where the first of adjacent ones does, else in front."""
    x, tensors = call.value("self"), call["indices"]
    given = [axis for axis, tensor in enumerate(tensors) if tensor is not None]
    if any(tensors[axis].dtype == "bool" for axis in given):
        raise call.refusal("selects by a mask, whose result's shape depends on values")
    shape = movement.broadcast_shape(*(tensors[axis].shape for axis in given))
    spread = [movement.expand(tensors[axis], shape) for axis in given]
    adjacent = given == list(range(given[0], given[-1] + 1))
    front = given[0] if adjacent else 0
    rest = [axis for axis in range(x.rank) if axis not in given]

    def body(*i: Elem) -> Elem:
        inner = i[front : front + len(shape)]
        outer = [*i[:front], *i[front + len(shape) :]]
        places: dict[int, Elem] = dict(zip(rest, outer, strict=True))
        for axis, tensor in zip(given, spread, strict=True):
            places[axis] = indexing.position(tensor[inner], x.shape[axis])
        return x[tuple(places[axis] for axis in range(x.rank))]

    return call.builder.compute("index", call.shape, body, dtype=x.dtype)


def scatter(reduction: str) -> Convert:
    def convert(call: Call) -> Value:
        x, indices = call.value("self"), call.value("index")
        name = "src" if "src" in call.arguments else "value"
        updates = movement.expand(call.value(name, x.dtype), indices.shape)
        return indexing.scatter_elements(x, indices, updates, call["dim"], reduction)

    return convert


# --- reductions


def reduced(
    reducer: Reducer,
    before: Callable[[Elem], Elem] = lambda e: e,
) -> Convert:
    def convert(call: Call) -> Value:
        x = call.value("self")
        x = x if x.dtype == "bool" else maps.cast(x, call.dtype)
        axes = _axes(call, x)
        return reductions.reduce(
            call.op,
            reducer,
            x,
            axes,
            keep=bool(call.get("keepdim")),
            function=before,
            dtype=call.dtype,
        )

    return convert


def _axes(call: Call, x: Value) -> tuple[int, ...]:
    given = call.get("dim")
    if isinstance(given, int):
        given = [given]
    return reductions.normalized(given, x.rank)


def mean(call: Call) -> Value:
    x = call.value("self", call.dtype)
    return reductions.mean(x, _axes(call, x), keep=bool(call.get("keepdim")))


def anywhere(any_is_enough: bool) -> Convert:
    """Whether any element (or every one) is true."""

    def convert(call: Call) -> Value:
        x = maps.cast(call.value("self", "bool"), "int32")
        axes = _axes(call, x)
        extreme = reductions.reduce(
            call.op, "max" if any_is_enough else "min", x, axes, keep=bool(call.get("keepdim"))
        )
        return maps.cast(extreme, "bool")

    return convert


def norm(call: Call) -> Value:
    x, order = call.value("self", call.dtype), call.get("ord", 2)
    axes, keep = _axes(call, x), bool(call.get("keepdim"))
    if order == 1:
        return reductions.reduce(
            "norm", "sum", x, axes, keep=keep, function=lambda e: unary("abs", e)
        )
    if order != 2:
        raise call.refusal(f"has order {order}; 1 and 2 are taken")
    total = reductions.reduce("norm", "sum", x, axes, keep=keep, function=lambda e: e * e)
    return elementwise("norm", partial(unary, "sqrt"), total)


def arg_extreme(greatest: bool) -> Convert:
    def convert(call: Call) -> Value:
        x = call.value("self")
        axis = call.get("dim")
        if axis is None:
            x, axis = movement.reshape(x, [x.elements]), 0
        keep = bool(call.get("keepdim"))
        return reductions.arg_extreme(x, axis % x.rank, greatest=greatest, last=False, keep=keep)

    return convert


def extreme_with_place(greatest: bool) -> Convert:
    def convert(call: Call) -> Results:
        x, keep = call.value("self"), bool(call.get("keepdim"))
        axis = call["dim"] % x.rank
        reducer: Reducer = "max" if greatest else "min"
        return (
            reductions.reduce(call.op, reducer, x, [axis], keep=keep),
            reductions.arg_extreme(x, axis, greatest=greatest, last=False, keep=keep),
        )

    return convert


def variance_and_mean(call: Call) -> Results:
    x = call.value("self", call.dtype)
    centre = reductions.mean(x, _axes(call, x), keep=bool(call.get("keepdim")))
    return (variance(call), centre)


def variance(call: Call) -> Value:
    x = call.value("self", call.dtype)
    axes, keep = _axes(call, x), bool(call.get("keepdim"))
    correction = call.get("correction")
    count = math.prod(x.shape[axis] for axis in axes) - (1 if correction is None else correction)
    with call.builder.kernel("variance"):
        centre = reductions.mean(x, axes, keep=True)
        squares = elementwise("squares", lambda e, m: (e - m) * (e - m), x, centre)
        total = reductions.reduce("variance", "sum", squares, axes, keep=keep)
        return elementwise("variance", lambda e: e * (1 / count), total)


def top_k(call: Call) -> Results:
    x = call.value("self")
    axis = call.get("dim", -1) % x.rank
    return reductions.top_k(x, call["k"], axis, greatest=call.get("largest", True))


def sort(call: Call) -> Results:
    x = call.value("self")
    axis = call.get("dim", -1) % x.rank
    return reductions.top_k(x, x.shape[axis], axis, greatest=call.get("descending", False))


def cumulative(reducer: Reducer) -> Convert:
    def convert(call: Call) -> Value:
        x = call.value("self", call.dtype)
        return reductions.cumulative(x, call["dim"] % x.rank, reducer)

    return convert


# --- products


def addmm(call: Call) -> Value:
    product = contraction.matmul(call.value("mat1"), call.value("mat2"))
    alpha, beta = call.get("alpha", 1), call.get("beta", 1)

    def body(e: Elem, z: Elem) -> Elem:
        return (e if alpha == 1 else e * alpha) + (z if beta == 1 else z * beta)

    return elementwise("addmm", body, product, call.value("self"))


def matmul(call: Call) -> Value:
    return contraction.matmul(call.value("self"), call.value("mat2"))


def convolution(call: Call) -> Value:
    x, weight = call.value("input"), call.value("weight")
    batched = x.rank == weight.rank
    x = x if batched else movement.unsqueeze(x, [0])
    spatial = x.rank - 2

    def spread(name: str) -> list[int]:
        given = list(call[name])
        return given * spatial if len(given) == 1 else given

    strides, padding, dilations = spread("stride"), spread("padding"), spread("dilation")
    if call["transposed"]:
        result = contraction.convolution_transpose(
            x,
            weight,
            strides=strides,
            pads=padding * 2,
            dilations=dilations,
            groups=call["groups"],
            sizes=call.shape[-spatial:],
        )
    else:
        result = contraction.convolution(
            x,
            weight,
            strides=strides,
            pads=padding * 2,
            dilations=dilations,
            groups=call["groups"],
        )
    if call.get("bias") is not None:
        bias = normalization.channel(call.value("bias"), x.rank)
        result = elementwise("bias", lambda e, b: e + b, result, bias)
    return result if batched else movement.squeeze(result, [0])


def convolution_backward(call: Call) -> Results:
    """The gradients by the input, the weights and the bias, as far as they are asked for."""
    gradient, x, weight = call.value("grad_output"), call.value("input"), call.value("weight")
    spatial = weight.rank - 2
    if x.rank != weight.rank:
        raise call.refusal("has no batch")
    strides, padding, dilations = (
        list(call[name]) * (spatial if len(call[name]) == 1 else 1)
        for name in ("stride", "padding", "dilation")
    )
    moves = {"strides": strides, "dilations": dilations, "groups": call["groups"]}
    by_input, by_weight, by_bias = (
        asked and place in call.used for place, asked in enumerate(call["output_mask"])
    )
    inside, outside = (gradient, x) if call["transposed"] else (x, gradient)
    results: list[Value | None] = [None, None, None]
    if by_input and call["transposed"]:
        results[0] = contraction.convolution(gradient, weight, pads=padding * 2, **moves)
    elif by_input:
        results[0] = contraction.convolution_transpose(
            gradient, weight, pads=padding * 2, sizes=x.shape[2:], **moves
        )
    if by_weight:
        results[1] = contraction.convolution_weight_gradient(
            inside, outside, kernel=weight.shape[2:], pads=padding, **moves
        )
    if by_bias:
        axes = [axis for axis in range(gradient.rank) if axis != 1]
        results[2] = reductions.reduce("bias", "sum", gradient, axes, keep=False)
    return results


# --- normalisation


def softmax(log: bool) -> Convert:
    def convert(call: Call) -> Value:
        x = call.value("self", call.dtype)
        return normalization.softmax(x, [call["dim"] % x.rank], log=log)

    return convert


def layer_norm(call: Call) -> Results:
    x, weight, bias = call.value("input"), call.get("weight"), call.get("bias")
    axes = range(x.rank - len(call["normalized_shape"]), x.rank)
    result = normalization.layer_norm(x, axes, weight, bias, call["eps"])
    return (result, *_statistics(call, x, axes))


def group_norm(call: Call) -> Results:
    x, groups = call.value("input"), call["group"]
    result = normalization.group_norm(x, groups, call.get("weight"), call.get("bias"), call["eps"])
    parts = movement.reshape(x, [x.shape[0], groups, x.elements // (x.shape[0] * groups)])
    return (result, *_statistics(call, parts, [2]))


def _statistics(call: Call, x: Value, axes: Sequence[int]) -> Sequence[Value | None]:
    """What only derivatives read of a normalisation: mean and reciprocal deviation."""
    if not call.used & {1, 2}:
        return None, None
    results = normalization.statistics(maps.cast(x, call.dtypes[1]), axes, call["eps"])
    return [movement.reshape(value, call.shapes[1]) for value in results]


def batch_norm(call: Call) -> Results:
    x = call.value("input")
    channels = x.shape[1]
    weight = call["weight"] or call.builder.constant([1.0] * channels, x.dtype)
    bias = call["bias"] or call.builder.constant([0.0] * channels, x.dtype)
    mean_value, spread = call.value("running_mean"), call.value("running_var")
    result = normalization.batch_norm(x, weight, bias, mean_value, spread, call["eps"])
    return (result, None, None)


def own_batch_norm(call: Call) -> Results:
    """By the statistics of the input itself, over all but its channels."""
    x = call.value("input")
    axes = [axis for axis in range(x.rank) if axis != 1]
    scale, shift = (
        None if call[name] is None else normalization.channel(call.value(name), x.rank)
        for name in ("weight", "bias")
    )
    return (normalization.layer_norm(x, axes, scale, shift, call["eps"]), None, None)


def rms_norm(call: Call) -> Value:
    x = call.value("input")
    axes = range(x.rank - len(call["normalized_shape"]), x.rank)
    epsilon = call.get("eps")
    return normalization.rms_norm(x, axes, call.get("weight"), epsilon or 1.1920929e-07)


# --- windows


def _window(call: Call, x: Value) -> pooling.Window:
    spatial = len(call["kernel_size"])

    def spread(name: str, default: list[int]) -> list[int]:
        given = list(call.get(name) or default)
        return given * spatial if len(given) == 1 else given

    kernel = list(call["kernel_size"])
    return pooling.window(
        x.shape[-spatial:],
        kernel,
        spread("stride", kernel),
        spread("padding", [0]) * 2,
        spread("dilation", [1]),
        ceil=bool(call.get("ceil_mode")),
    )


def _batched(call: Call) -> tuple[Value, bool]:
    x = call.value("self")
    batched = x.rank == len(call["kernel_size"]) + 2
    return (x if batched else movement.unsqueeze(x, [0])), batched


def max_pool(call: Call) -> Results:
    """The greatest elements, and where each stands in its plane."""
    x, batched = _batched(call)
    window = _window(call, x)
    pooled = pooling.max_pool(x, window)
    places = pooling.max_pool_positions(x, window, pooled)
    plane = math.prod(x.shape[2:])
    places = elementwise("in_plane", lambda e: e % plane, places)
    results = (pooled, places)
    return results if batched else [movement.squeeze(value, [0]) for value in results]


def average_pool(call: Call) -> Value:
    x, batched = _batched(call)
    if call.get("divisor_override"):
        raise call.refusal("has a divisor of its own")
    pooled = pooling.average_pool(
        x, _window(call, x), count_padding=bool(call.get("count_include_pad", True))
    )
    return pooled if batched else movement.squeeze(pooled, [0])


def max_pool_backward(call: Call) -> Value:
    gradient, x = call.value("grad_output"), call.value("self")
    window = _window(call, x)
    if x.rank != len(window.kernel) + 2:
        raise call.refusal("has no batch")
    places = call.value("indices")
    return pooling.pool_gradient(gradient, window, x.shape[2:], places)


def average_pool_backward(call: Call) -> Value:
    gradient, x = call.value("grad_output"), call.value("self")
    window = _window(call, x)
    if x.rank != len(window.kernel) + 2 or call.get("divisor_override"):
        raise call.refusal("has no batch, or a divisor of its own")
    weights = pooling.average_weights(
        x, window, count_padding=bool(call.get("count_include_pad", True))
    )
    scaled = elementwise("shares", lambda e, f: e * f, gradient, weights)
    return pooling.pool_gradient(scaled, window, x.shape[2:])


def adaptive_average(call: Call) -> Value:
    """Windows that cover the input evenly: of a dimension that its result does not divide
    they overlap, and differ by one in size."""
    x = call.value("self")
    sizes = list(call["output_size"])
    for axis, size in enumerate(sizes, start=x.rank - len(sizes)):
        x = pooling.adaptive_average(x, axis, size)
    return x


# --- resampling


def upsample(mode: str) -> Convert:
    def convert(call: Call) -> Value:
        x = call.value("input") if "input" in call.arguments else call.value("self")
        aligned = bool(call.get("align_corners"))
        spatial = x.rank - 2
        factors = _factors(call, spatial)
        for d in range(spatial):
            axis, old = 2 + d, x.shape[2 + d]
            new = call.shape[axis]
            scale = factors[d] or new / old
            x = _resampled(x, axis, new, scale, mode, aligned=aligned)
        return x

    return convert


def _factors(call: Call, spatial: int) -> list[float | None]:
    given = call.get("scale_factors")
    if given is None:
        names = ("scales_d", "scales_h", "scales_w")[-spatial:]
        given = [call.get(name, call.get("scales")) for name in names]
    return list(given)


def _resampled(x: Value, axis: int, new: int, scale: float, mode: str, *, aligned: bool) -> Value:
    old = x.shape[axis]
    outputs = resize.positions(new)
    if mode == "nearest":
        sources = resize.asymmetric(outputs, old, new, scale)
        return resize.resample(x, axis, resize.nearest(sources, old, "floor"))
    coordinates = resize.align_corners if aligned else resize.half_pixel
    sources = coordinates(outputs, old, new, scale)
    if mode == "cubic":
        taps = resize.cubic(sources, old, scale=scale, antialias=False, exclude=False, a=-0.75)
    else:
        taps = resize.linear(sources, old, scale=scale, antialias=False, exclude=False)
    return resize.resample(x, axis, taps)


TABLE: Mapping[str, Convert] = {
    "aten._adaptive_avg_pool2d.default": adaptive_average,
    "aten._adaptive_avg_pool3d.default": adaptive_average,
    "aten._log_softmax.default": softmax(log=True),
    "aten._native_batch_norm_legit.no_stats": own_batch_norm,
    "aten._native_batch_norm_legit_no_training.default": batch_norm,
    "aten._softmax.default": softmax(log=False),
    "aten._to_copy.default": cast,
    "aten.abs.default": named("abs"),
    "aten.acos.default": named("acos"),
    "aten.acosh.default": named("acosh"),
    "aten.add.Scalar": pair(lambda a, b: a + b),
    "aten.add.Tensor": pair(lambda a, b: a + b),
    "aten.addmm.default": addmm,
    "aten.alias.default": same,
    "aten.all.default": anywhere(any_is_enough=False),
    "aten.all.dim": anywhere(any_is_enough=False),
    "aten.all.dims": anywhere(any_is_enough=False),
    "aten.amax.default": reduced("max"),
    "aten.amin.default": reduced("min"),
    "aten.any.default": anywhere(any_is_enough=True),
    "aten.any.dim": anywhere(any_is_enough=True),
    "aten.any.dims": anywhere(any_is_enough=True),
    "aten.argmax.default": arg_extreme(greatest=True),
    "aten.argmin.default": arg_extreme(greatest=False),
    "aten.asin.default": named("asin"),
    "aten.asinh.default": named("asinh"),
    "aten.atan.default": named("atan"),
    "aten.atanh.default": named("atanh"),
    "aten.atan2.default": pair(maps.atan2),
    "aten.avg_pool1d.default": average_pool,
    "aten.avg_pool2d.default": average_pool,
    "aten.avg_pool2d_backward.default": average_pool_backward,
    "aten.avg_pool3d.default": average_pool,
    "aten.bitwise_and.Scalar": bits("bitand"),
    "aten.bitwise_and.Tensor": bits("bitand"),
    "aten.bitwise_not.default": inverted,
    "aten.bitwise_or.Scalar": bits("bitor"),
    "aten.bitwise_or.Tensor": bits("bitor"),
    "aten.bitwise_xor.Scalar": bits("xor"),
    "aten.bitwise_xor.Tensor": bits("xor"),
    "aten.bmm.default": matmul,
    "aten.cat.default": cat,
    "aten.ceil.default": named("ceil"),
    "aten.clamp.Tensor": clamped,
    "aten.clamp.default": clamped,
    "aten.clone.default": same,
    "aten.constant_pad_nd.default": padded,
    "aten.convolution.default": convolution,
    "aten.convolution_backward.default": convolution_backward,
    "aten.copy.default": lambda call: movement.expand(call.value("src", call.dtype), call.shape),
    "aten.cos.default": named("cos"),
    "aten.cosh.default": named("cosh"),
    "aten.cumprod.default": cumulative("prod"),
    "aten.cumsum.default": cumulative("sum"),
    "aten.div.Scalar": divide,
    "aten.div.Scalar_mode": divide,
    "aten.div.Tensor": divide,
    "aten.div.Tensor_mode": divide,
    "aten.elu.default": elu,
    "aten.embedding.default": embedding,
    "aten.eq.Scalar": compared(lambda a, b: a.equals(b)),
    "aten.eq.Tensor": compared(lambda a, b: a.equals(b)),
    "aten.erf.default": named("erf"),
    "aten.exp.default": named("exp"),
    "aten.expand.default": expand,
    "aten.expm1.default": each(maps.expm1),
    "aten.fill.Scalar": fill,
    "aten.flip.default": flip,
    "aten.floor.default": named("floor"),
    "aten.fmod.Scalar": pair(maps.truncated_remainder),
    "aten.fmod.Tensor": pair(maps.truncated_remainder),
    "aten.full.default": full,
    "aten.full_like.default": full,
    "aten.gather.default": gather,
    "aten.ge.Scalar": compared(lambda a, b: a >= b),
    "aten.ge.Tensor": compared(lambda a, b: a >= b),
    "aten.gelu.default": gelu,
    "aten.gt.Scalar": compared(lambda a, b: a > b),
    "aten.gt.Tensor": compared(lambda a, b: a > b),
    "aten.hardsigmoid.default": hard(lambda e: maps.hard_sigmoid(e, 1 / 6, 0.5)),
    "aten.hardswish.default": hard(maps.hard_swish),
    "aten.hardtanh.default": clamped,
    "aten.index.Tensor": index,
    "aten.index_select.default": index_select,
    "aten.isinf.default": tested(maps.is_inf),
    "aten.isnan.default": tested(maps.is_nan),
    "aten.le.Scalar": compared(lambda a, b: a <= b),
    "aten.le.Tensor": compared(lambda a, b: a <= b),
    "aten.leaky_relu.default": leaky_relu,
    "aten.lift_fresh_copy.default": same,
    "aten.linalg_vector_norm.default": norm,
    "aten.log.default": named("log"),
    "aten.log10.default": each(lambda e: unary("log", e) * (1 / math.log(10))),
    "aten.log1p.default": each(maps.log1p),
    "aten.log2.default": each(lambda e: unary("log", e) * (1 / math.log(2))),
    "aten.logical_and.default": truth(lambda a, b: a & b),
    "aten.logical_not.default": truth(lambda a: ~a),
    "aten.logical_or.default": truth(lambda a, b: a | b),
    "aten.logical_xor.default": truth(lambda a, b: a.differs(b)),
    "aten.lt.Scalar": compared(lambda a, b: a < b),
    "aten.lt.Tensor": compared(lambda a, b: a < b),
    "aten.max.dim": extreme_with_place(greatest=True),
    "aten.max_pool1d_with_indices.default": max_pool,
    "aten.max_pool2d_with_indices.default": max_pool,
    "aten.max_pool2d_with_indices_backward.default": max_pool_backward,
    "aten.max_pool3d_with_indices.default": max_pool,
    "aten.maximum.default": pair(maximum),
    "aten.mean.default": mean,
    "aten.mean.dim": mean,
    "aten.min.dim": extreme_with_place(greatest=False),
    "aten.minimum.default": pair(minimum),
    "aten.mm.default": matmul,
    "aten.mul.Scalar": pair(lambda a, b: a * b),
    "aten.mul.Tensor": pair(lambda a, b: a * b),
    "aten.native_dropout.default": lambda call: (call.value("input"), None),
    "aten.native_group_norm.default": group_norm,
    "aten.native_layer_norm.default": layer_norm,
    "aten.ne.Scalar": compared(lambda a, b: a.differs(b)),
    "aten.ne.Tensor": compared(lambda a, b: a.differs(b)),
    "aten.neg.default": each(lambda a: -a),
    "aten.permute.default": permute,
    "aten.pow.Scalar": power,
    "aten.pow.Tensor_Scalar": power,
    "aten.pow.Tensor_Tensor": power,
    "aten.prod.default": reduced("prod"),
    "aten.prod.dim_int": reduced("prod"),
    "aten.reciprocal.default": each(maps.reciprocal),
    "aten.reflection_pad1d.default": padded_by("reflect"),
    "aten.reflection_pad2d.default": padded_by("reflect"),
    "aten.reflection_pad3d.default": padded_by("reflect"),
    "aten.relu.default": each(maps.relu),
    "aten.remainder.Scalar": pair(maps.remainder),
    "aten.remainder.Tensor": pair(maps.remainder),
    "aten.repeat.default": repeat,
    "aten.replication_pad1d.default": padded_by("edge"),
    "aten.replication_pad2d.default": padded_by("edge"),
    "aten.replication_pad3d.default": padded_by("edge"),
    "aten.rms_norm.default": rms_norm,
    "aten.roll.default": roll,
    "aten.round.default": named("round"),
    "aten.rsqrt.default": named("rsqrt"),
    "aten.rsub.Scalar": pair(lambda a, b: b - a),
    "aten.rsub.Tensor": pair(lambda a, b: b - a),
    "aten.scatter.src": scatter("none"),
    "aten.scatter.value": scatter("none"),
    "aten.scatter_add.default": scatter("add"),
    "aten.select.int": select,
    "aten.sigmoid.default": each(maps.sigmoid),
    "aten.sign.default": each(lambda e: where(maps.is_nan(e), 0, maps.sign(e))),
    "aten.silu.default": each(maps.silu),
    "aten.sin.default": named("sin"),
    "aten.sinh.default": named("sinh"),
    "aten.slice.Tensor": take_slice,
    "aten.sort.default": sort,
    "aten.split_with_sizes.default": split,
    "aten.sqrt.default": named("sqrt"),
    "aten.squeeze.dim": view,
    "aten.squeeze.dims": view,
    "aten.sub.Scalar": pair(lambda a, b: a - b),
    "aten.sub.Tensor": pair(lambda a, b: a - b),
    "aten.sum.default": reduced("sum"),
    "aten.sum.dim_IntList": reduced("sum"),
    "aten.tan.default": named("tan"),
    "aten.tanh.default": named("tanh"),
    "aten.topk.default": top_k,
    "aten.tril.default": triangle(upper=False),
    "aten.triu.default": triangle(upper=True),
    "aten.trunc.default": named("trunc"),
    "aten.unsqueeze.default": view,
    "aten.upsample_bicubic2d.default": upsample("cubic"),
    "aten.upsample_bicubic2d.vec": upsample("cubic"),
    "aten.upsample_bilinear2d.default": upsample("linear"),
    "aten.upsample_bilinear2d.vec": upsample("linear"),
    "aten.upsample_linear1d.default": upsample("linear"),
    "aten.upsample_linear1d.vec": upsample("linear"),
    "aten.upsample_nearest1d.default": upsample("nearest"),
    "aten.upsample_nearest1d.vec": upsample("nearest"),
    "aten.upsample_nearest2d.default": upsample("nearest"),
    "aten.upsample_nearest2d.vec": upsample("nearest"),
    "aten.upsample_nearest3d.default": upsample("nearest"),
    "aten.upsample_nearest3d.vec": upsample("nearest"),
    "aten.upsample_trilinear3d.default": upsample("linear"),
    "aten.upsample_trilinear3d.vec": upsample("linear"),
    "aten.var.correction": variance,
    "aten.var.dim": variance,
    "aten.var_mean.correction": variance_and_mean,
    "aten.view.default": view,
    "aten.where.self": select_where,
}
