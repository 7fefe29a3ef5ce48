"""Operators of the domain `com.microsoft` on integers that stand for real numbers, which
ONNX Runtime's quantiser and optimiser write.

Most compute what their real inputs give and round that once, in float32; ONNX Runtime's
tables and fixed point may differ by one in the last place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tuner.models.from_onnx import products, recurrent, reductions
from tuner.models.from_onnx.microsoft_attention import projected_attention
from tuner.models.from_onnx.node import Convert, Node, Results
from tuner.models.operators import contraction, integer_products, movement
from tuner.models.operators import elementwise as maps
from tuner.models.operators import quantization as ops
from tuner.models.operators import reduction as reduce_ops
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.movement import reshape, transpose
from tuner.models.operators.scalars import Elem, cast_to, clamp, constant, where
from tuner.models.operators.values import Value
from tuner.workload.expression import Binary


def _real(node: Node, place: int, axis: int = -1) -> Value:
    """The real numbers of an input that its scale and zero point follow."""
    layout = ops.Layout(axis=axis)
    return ops.dequantize(node[place], node[place + 1], node.optional(place + 2), layout)


def _rounded(node: Node, x: Value, place: int, like: int = 0) -> Value:
    """As integers by the scale at an input's place and the zero point behind it, of the
    dtype of the zero point, or of the input `like`."""
    zero = node.optional(place + 1)
    dtype = node[like].dtype if zero is None else zero.dtype
    return ops.quantize(x, node[place], zero, ops.Layout(axis=-1), dtype)


def pair(function: Callable[[Elem, Elem], Elem]) -> Convert:
    def convert(node: Node) -> Value:
        return _rounded(
            node, elementwise(node.op, function, _real(node, 0), _real(node, 3)), place=6
        )

    return convert


def each(function: Callable[[Node], Callable[[Elem], Elem]]) -> Convert:
    def convert(node: Node) -> Value:
        return _rounded(node, elementwise(node.op, function(node), _real(node, 0)), place=3)

    return convert


def _leaky(node: Node) -> Callable[[Elem], Elem]:
    return partial(maps.leaky_relu, alpha=float(node.attribute("alpha", 0.01)))


def on_reals(function: Convert, opset: str = "") -> Convert:
    """An operator of the standard on the real numbers; the result is rounded."""

    def convert(node: Node) -> Value:
        version = node.attribute(opset, node.opset) if opset else node.opset
        inner = replace(node, inputs=(_real(node, 0),), opset=version)
        result = function(inner)
        assert isinstance(result, Value)
        return _rounded(node, result, place=3)

    return convert


def channels_first(function: Convert) -> Convert:
    """An operator of N, C, spatial for one that may have its channels last."""

    def convert(node: Node) -> Results:
        if not node.attribute("channels_last", 0):
            return function(node)
        return with_channels_last(function)(node)

    return convert


def with_channels_last(function: Convert, images: Sequence[int] = (0,)) -> Convert:
    """The same for one whose `images` and result have their channels last."""

    def convert(node: Node) -> Results:
        rank = node[0].rank
        inputs = tuple(
            transpose(value, [0, rank - 1, *range(1, rank - 1)])
            if place in images and value is not None
            else value
            for place, value in enumerate(node.inputs)
        )
        result = function(replace(node, inputs=inputs))
        assert isinstance(result, Value)
        return transpose(result, [0, *range(2, rank), 1])

    return convert


def concat(node: Node) -> Value:
    values = [_real(node, place) for place in range(2, len(node.inputs), 3)]
    joined = movement.concatenate(values, node.attribute("axis", 0) % values[0].rank)
    return _rounded(node, joined, place=0, like=2)


def select(node: Node) -> Value:
    chosen = elementwise(
        "where", where, node[0], _real(node, 1), _real(node, 4), dtype=node[2].dtype
    )
    return _rounded(node, chosen, place=7, like=1)


def reduce_mean(node: Node) -> Value:
    x = _real(node, 0)
    axes = reduce_ops.normalized(node.attribute("axes", None), x.rank)
    mean = reduce_ops.mean(x, axes, keep=bool(node.attribute("keepdims", 1)))
    return _rounded(node, mean, place=3)


def _scaled(product: Value, a_scale: Value, b_scale: Value, bias: Value | None) -> Value:
    """Sums of integers as real numbers; a vector of scales is one a column."""
    factors = [ops.per_axis(scale, product, -1) for scale in (a_scale, b_scale)]
    values = [product, *factors, *([] if bias is None else [bias])]

    def body(e: Elem, a: Elem, b: Elem, *added: Elem) -> Elem:
        real = cast_to(a.dtype, e) * (a * b)
        return real + added[0] if added else real

    return elementwise("scaled", body, *values, dtype=a_scale.dtype)


def gemm(node: Node) -> Value:
    """Integers in and out; without a scale of the result, real numbers out."""
    a = transpose(node[0], [1, 0]) if node.attribute("transA", 0) else node[0]
    b = transpose(node[3], [1, 0]) if node.attribute("transB", 0) else node[3]
    product = integer_products.matmul(a, node.optional(2), b, node.optional(5))
    if (bias := node.optional(6)) is not None:
        product = elementwise("bias", lambda e, c: e + c, product, bias)
    alpha = float(node.attribute("alpha", 1.0))
    scale = node[1]
    if alpha != 1:
        scale = elementwise("alpha", lambda e: e * alpha, scale)
    real = _scaled(product, scale, node[4], None)
    return real if node.optional(7) is None else _rounded(node, real, place=7)


def matmul_integer_to_float(node: Node) -> Value:
    product = integer_products.matmul(node[0], node.optional(4), node[1], node.optional(5))
    return _scaled(product, node[2], node[3], node.optional(6))


def dynamic_quantize_matmul(node: Node) -> Value:
    integers, scale, zero = ops.dynamic_quantize(node[0])
    product = integer_products.matmul(integers, zero, node[1], node.optional(3))
    return _scaled(product, scale, node[2], node.optional(4))


def matmul_n_bits(node: Node) -> Value:
    """Weights [N, K] of a few bits each, in blocks along K with a scale and a zero point.

    Where the file allows x to be rounded to 8 bits (`accuracy_level` 4), weights of four
    and eight are multiplied with such integers: x by its greatest absolute value in each
    block.
    """
    if node.attribute("weight_prepacked", 0):
        raise node.refusal("has weights in the order of one device")
    x, n, k = node[0], node.attribute("N", 1), node.attribute("K", 1)
    bits, block = node.attribute("bits", 4), node.attribute("block_size", 32)
    if bits not in (2, 4, 8):
        raise node.refusal(f"has weights of {bits} bits; 2, 4 and 8 are taken")
    blocks, middle = -(-k // block), float(1 << (bits - 1))
    packed = reshape(node[1], [n, node[1].elements // n])
    scales = reshape(node[2], [n, blocks])
    zeros, groups = node.optional(3), node.optional(4)
    if zeros is not None:
        zeros = reshape(zeros, [n, zeros.elements // n])

    def weight(row: Elem, column: Elem) -> Elem:
        number = column // block
        if groups is not None:
            number = clamp(cast_to("int64", groups[column]), 0, blocks - 1)
        scale = scales[row, number]
        e = cast_to(scale.dtype, _unpacked(packed, (row, column), bits))
        if zeros is None:
            return (e - middle) * scale
        if zeros.dtype == "uint8":
            return (e - cast_to(scale.dtype, _unpacked(zeros, (row, number), bits))) * scale
        return (e - zeros[row, number]) * scale

    # One node: a schedule may unpack the weights where they are multiplied.
    rounds = node.attribute("accuracy_level", 0) == 4 and bits != 2 and groups is None
    with node.builder.kernel("matmul"):
        weights = node.builder.compute("unpacked", [n, k], weight, dtype=x.dtype)
        if rounds and x.dtype == "float32":
            product = _product_of_rounded(x, weights, block)
        else:
            product = contraction.matmul(x, transpose(weights, [1, 0]))
    bias = node.optional(5)
    if bias is None:
        return product
    return elementwise("bias", lambda e, b: e + b, product, bias)


def _product_of_rounded(x: Value, weights: Value, block: int) -> Value:
    """Products of rows of x, rounded to -127 to 127 block by block, with rows of weights."""
    *lead, k = x.shape
    integers, steps = ops.block_quantize(x, block)

    def body(*places: Elem) -> Elem:
        *row, j, c = places
        real = cast_to("float32", integers[(*row, c)]) * steps[(*row, c // block)]
        return real * weights[j, c]

    shape = [*lead, weights.shape[0]]
    return x.builder.reduce("matmul", "sum", shape, [k], body, dtype="float32")


def gather_block_quantized(node: Node) -> Value:
    """Slices of a table of few bits, as real numbers; zeros for an index outside."""
    data, indices, scales, zeros = node[0], node[1], node[2], node.optional(3)
    bits, block = node.attribute("bits", 4), node.attribute("block_size", 128)
    axis = node.attribute("gather_axis", 0) % data.rank
    along = node.attribute("quantize_axis", 1) % data.rank
    if data.format is not None and data.format.name not in ("int4", "uint4"):
        raise node.refusal(f"has weights of {data.format.name}; 2, 4 and 8 bits are taken")
    is_packed = data.format is None
    if is_packed and bits not in (2, 4, 8):
        raise node.refusal(f"has weights of {bits} bits; 2, 4 and 8 are taken")
    width = bits if is_packed else 8
    middle = 1 << (bits - 1) if is_packed else 0
    whole = [*data.shape[:-1], data.shape[-1] * (8 // width)]
    extent = whole[axis]

    def body(*i: Elem) -> Elem:
        index = cast_to("int64", indices[i[axis : axis + indices.rank]])
        index = where(index < 0, index + extent, index)
        place = clamp(index, 0, extent - 1)
        places = (*i[:axis], place, *i[axis + indices.rank :])
        blocks = tuple(e // block if number == along else e for number, e in enumerate(places))
        scale = scales[blocks]
        origin = constant(middle, "int32") if zeros is None else _unpacked(zeros, blocks, width)
        real = cast_to(scale.dtype, _unpacked(data, places, width) - origin) * scale
        return where(index < 0, 0, where(index < extent, real, 0))

    shape = [*whole[:axis], *indices.shape, *whole[axis + 1 :]]
    return node.builder.compute("gather", shape, body, dtype=scales.dtype)


def _unpacked(bytes_of: Value, places: tuple[Elem, ...], bits: int) -> Elem:
    """A number of a few bits out of rows of bytes, the lowest bits first."""
    each_byte, number = 8 // bits, places[-1]
    byte = bytes_of[(*places[:-1], number // each_byte)] if each_byte > 1 else bytes_of[places]
    if each_byte == 1:
        return byte
    shift = cast_to("int32", number % each_byte) * bits
    shifted = Binary("shr", byte.node, shift.node)
    return Elem(Binary("bitand", shifted, constant(2**bits - 1, "int32").node), "int32")


def attention(node: Node) -> Results:
    product = integer_products.matmul(node[0], node.optional(6), node[1], node.optional(7))
    real = _scaled(product, node[3], node[4], node[2])
    return projected_attention(node, real, node.optional(5), node.optional(8), None)


def dynamic_quantize_lstm(node: Node) -> Results:
    """With the real numbers of its weights, which lie [directions, features, gates], and of
    its inputs and states, which are rounded to uint8: the inputs of all steps together,
    a state in each step."""
    real = []
    for place, scale in ((1, 8), (2, 10)):
        value = node[place]
        vector, zero = node[scale], node[scale + 1]
        columns = vector.elements // value.shape[0]
        shape = [vector.elements // columns, 1, columns]
        factors, zeros = reshape(vector, shape), reshape(zero, shape)

        def weight(e: Elem, s: Elem, z: Elem) -> Elem:
            return cast_to(s.dtype, e - z) * s

        weights = elementwise("weights", weight, value, factors, zeros, dtype=vector.dtype)
        real.append(transpose(weights, [0, 2, 1]))
    return recurrent.lstm(replace(node, inputs=(node[0], *real, *node.inputs[3:8])), _nearest)


def _nearest(x: Value) -> Value:
    """The real numbers of the nearest integers."""
    integers, scale, zero = ops.dynamic_quantize(x)
    return ops.dequantize(integers, scale, zero, ops.Layout(), x.dtype)


TABLE: Mapping[str, Convert] = {
    "DequantizeLinear": products.dequantize,
    "DynamicQuantizeLSTM": dynamic_quantize_lstm,
    "DynamicQuantizeMatMul": dynamic_quantize_matmul,
    "GatherBlockQuantized": gather_block_quantized,
    "MatMulIntegerToFloat": matmul_integer_to_float,
    "MatMulNBits": matmul_n_bits,
    "QAttention": attention,
    "QGemm": gemm,
    "QLinearAdd": pair(lambda a, b: a + b),
    "QLinearAveragePool": channels_first(on_reals(products.average_pool)),
    "QLinearConcat": concat,
    "QLinearConv": channels_first(products.qlinear_conv),
    "QLinearGlobalAveragePool": channels_first(on_reals(products.global_pool(greatest=False))),
    "QLinearLeakyRelu": each(_leaky),
    "QLinearMul": pair(lambda a, b: a * b),
    "QLinearReduceMean": reduce_mean,
    "QLinearSigmoid": each(lambda node: maps.sigmoid),
    "QLinearSoftmax": on_reals(reductions.softmax(log=False), opset="opset"),
    "QLinearWhere": select,
    "QuantizeLinear": products.quantize,
}
