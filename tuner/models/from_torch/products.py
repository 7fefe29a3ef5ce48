"""Products and convolutions of ATen, and the derivatives of convolutions."""

from __future__ import annotations

from tuner.models.from_torch.call import Call, Results
from tuner.models.operators import (
    contraction,
    integer_products,
    movement,
    normalization,
)
from tuner.models.operators import reduction as reductions
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.scalars import Elem, cast_to
from tuner.models.operators.values import Value


def addmm(call: Call) -> Value:
    left, right, added = call.value("mat1"), call.value("mat2"), call.value("self")
    alpha, beta = call.get("alpha", 1), call.get("beta", 1)
    if alpha == beta == 1:
        integers = integer_products.real_matmul(left, right, added)
        if integers is not None:
            return integers
    product = contraction.matmul(left, right)

    def body(e: Elem, z: Elem) -> Elem:
        return (e if alpha == 1 else e * alpha) + (z if beta == 1 else z * beta)

    return elementwise("addmm", body, product, added)


def matmul(call: Call) -> Value:
    left, right = call.value("self"), call.value("mat2")
    integers = integer_products.real_matmul(left, right)
    return contraction.matmul(left, right) if integers is None else integers


def int_matmul(call: Call) -> Value:
    """Of integers of 8 bits, summed in 32."""
    return integer_products.matmul(call.value("self"), None, call.value("mat2"), None)


def trilinear(call: Call) -> Value:
    """Sums of products of three tensors, each with units where its `expand` says."""
    given = [movement.unsqueeze(call.value(f"i{n}"), call[f"expand{n}"]) for n in (1, 2, 3)]
    shape = movement.broadcast_shape(*(value.shape for value in given))
    factors = [movement.expand(value, shape) for value in given]
    summed = [axis % len(shape) for axis in call["sumdim"]]
    kept = [axis for axis in range(len(shape)) if axis not in summed]

    def body(*places: Elem) -> Elem:
        indices = dict(zip([*kept, *summed], places, strict=True))
        first, second, third = (
            value[tuple(indices[axis] for axis in range(len(shape)))] for value in factors
        )
        return first * second * third

    return call.builder.reduce(
        "trilinear",
        "sum",
        [shape[axis] for axis in kept],
        [shape[axis] for axis in summed],
        body,
        dtype=call.dtype,
    )


def weight_int8_matmul(call: Call) -> Value:
    """By weights [N, K] of a byte with a scale for each output, which stay bytes."""
    x, weight, scales = call.value("self"), call.value("mat2"), call.value("scales")

    def body(row: Elem, unit: Elem, k: Elem) -> Elem:
        left = x[row, k]
        return left * cast_to(left.dtype, weight[unit, k])

    with x.builder.kernel("matmul"):
        product = x.builder.reduce(
            "matmul", "sum", call.shape, [x.shape[1]], body, dtype=call.dtype
        )
        return elementwise("scaled", lambda e, s: e * s, product, scales)


def convolution(call: Call) -> Value:
    x, weight = call.value("input"), call.value("weight")
    batched = x.rank == weight.rank
    x = x if batched else movement.unsqueeze(x, [0])
    spatial = x.rank - 2

    def spread(name: str) -> list[int]:
        given = list(call[name])
        return given * spatial if len(given) == 1 else given

    strides, padding, dilations = spread("stride"), spread("padding"), spread("dilation")
    moves = {"strides": strides, "dilations": dilations, "groups": call["groups"]}
    bias = None if call.get("bias") is None else call.value("bias")
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
        moves["pads"] = padding * 2
        integers = integer_products.real_convolution(x, weight, bias, moves)
        if integers is not None:
            return integers if batched else movement.squeeze(integers, [0])
        result = contraction.convolution(x, weight, **moves)
    if bias is not None:
        channels = normalization.channel(bias, x.rank)
        result = elementwise("bias", lambda e, b: e + b, result, channels)
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
