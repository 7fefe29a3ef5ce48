"""Sums of products: matrix products, Einstein sums, convolutions and their transposes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tuner.models.operators.movement import broadcast_shape, expand, flip, reshape, transpose
from tuner.models.operators.scalars import Elem, cast_to, clamp, constant, where
from tuner.models.operators.values import Value
from tuner.workload.dtypes import DType

_CHANNELS_LAST_FROM = 8  # input channels from which a copy in that order pays


def matmul(a: Value, b: Value, dtype: DType | None = None) -> Value:
    """NumPy's `matmul`: the last two dimensions, the others broadcast."""
    if a.rank == 1 or b.rank == 1:
        left = reshape(a, [1, *a.shape]) if a.rank == 1 else a
        right = reshape(b, [*b.shape, 1]) if b.rank == 1 else b
        product = matmul(left, right, dtype)
        shape = product.shape[:-2]
        shape += product.shape[-2:-1] if a.rank > 1 else ()
        shape += product.shape[-1:] if b.rank > 1 else ()
        return reshape(product, shape)
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"a product of shapes {list(a.shape)} and {list(b.shape)}")
    lead = broadcast_shape(a.shape[:-2], b.shape[:-2])
    a, b = expand(a, [*lead, *a.shape[-2:]]), expand(b, [*lead, *b.shape[-2:]])

    def body(*places: Elem) -> Elem:
        *outer, i, j, k = places
        return _product(a[(*outer, i, k)], b[(*outer, k, j)], dtype)

    return a.builder.reduce(
        "matmul",
        "sum",
        [*lead, a.shape[-2], b.shape[-1]],
        [a.shape[-1]],
        body,
        dtype=dtype or a.dtype,
    )


def _product(left: Elem, right: Elem, dtype: DType | None) -> Elem:
    if dtype is not None and left.dtype != dtype and dtype == "int64":
        return cast_to(dtype, left) * cast_to(dtype, right)
    return left * right


def einsum(equation: str, *operands: Value) -> Value:
    """NumPy's `einsum` without repeated letters in one operand and with `...` spelt out."""
    given, _, out = equation.replace(" ", "").partition("->")
    terms = given.split(",")
    if "..." in equation:
        terms, out = _without_ellipsis(terms, out, "->" in equation, operands)
    elif "->" not in equation:
        letters = sorted(set("".join(terms)))
        out = "".join(letter for letter in letters if "".join(terms).count(letter) == 1)
    extents: dict[str, int] = {}
    for term, operand in zip(terms, operands, strict=True):
        if len(term) != operand.rank:
            raise ValueError(f"{term!r} does not name the dimensions of {list(operand.shape)}")
        for letter, extent in zip(term, operand.shape, strict=True):
            extents[letter] = max(extent, extents.get(letter, 1))
    summed = [letter for letter in extents if letter not in out]

    def body(*places: Elem) -> Elem:
        indices = dict(zip([*out, *summed], places, strict=True))
        factors = [
            operand[
                tuple(
                    constant(0, "int64") if extent == 1 else indices[letter]
                    for letter, extent in zip(term, operand.shape, strict=True)
                )
            ]
            for term, operand in zip(terms, operands, strict=True)
        ]
        result = factors[0]
        for factor in factors[1:]:
            result = result * factor
        return result

    builder, dtype = operands[0].builder, operands[0].dtype
    shape, over = [extents[letter] for letter in out], [extents[letter] for letter in summed]
    if not summed:
        return builder.compute("einsum", shape, body, dtype=dtype)
    return builder.reduce("einsum", "sum", shape, over, body, dtype=dtype)


def _without_ellipsis(
    terms: Sequence[str], out: str, explicit: bool, operands: Sequence[Value]
) -> tuple[list[str], str]:
    free = [letter for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if letter not in "".join(terms)]
    counts = [
        operand.rank - len(term.replace("...", "")) if "..." in term else 0
        for term, operand in zip(terms, operands, strict=True)
    ]
    most = max(counts)
    spelt = [
        term.replace("...", "".join(free[most - count : most]))
        for term, count in zip(terms, counts, strict=True)
    ]
    if explicit:
        return spelt, out.replace("...", "".join(free[:most]))
    letters = sorted(set("".join(terms)) - {"."})
    single = [letter for letter in letters if "".join(terms).count(letter) == 1]
    return spelt, "".join([*free[:most], *single])


def convolution(
    x: Value,
    weight: Value,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    zero_point: Value | None = None,
    weight_zero_point: Value | None = None,
    pad: int = 0,
    dtype: DType | None = None,
) -> Value:
    """Of x in N, C, spatial and weights in O, I / groups, spatial; any number of spatial
    dimensions. `pads` are those in front, then those behind. The result is stored with its
    channels last. Outside of x is `pad`.

    With zero points both operands are integers that are counted from them. The products are
    of the weights' dtype, which may be floats for an x of integers.
    """
    spatial = x.rank - 2
    kernel, filters = weight.shape[2:], weight.shape[0]
    per_group, each = weight.shape[1], filters // groups
    if x.shape[1] != per_group * groups:
        raise ValueError(
            f"weights of {per_group} channels in {groups} groups for an input of {x.shape[1]}"
        )
    sizes = tuple(
        (extent + pads[d] + pads[spatial + d] - dilations[d] * (kernel[d] - 1) - 1) // strides[d]
        + 1
        for d, extent in enumerate(x.shape[2:])
    )
    last = channels_last(x.rank)
    if groups > 1 or x.shape[1] >= _CHANNELS_LAST_FROM or not x.whole:
        x = x.materialized(last)
    # Weights are read in the order of the loops: spatial, input channel, filter.
    weight = transpose(weight, [*range(2, weight.rank), 1, 0])

    def body(*places: Elem) -> Elem:
        n, o, *rest = places
        outer, window, c = rest[:spatial], rest[spatial : 2 * spatial], rest[-1]
        channel = _group(o, each, groups) * per_group + c
        inside = [
            outer[d] * strides[d] + window[d] * dilations[d] - pads[d] for d in range(spatial)
        ]
        factor = weight[(*window, c, o)]
        if weight_zero_point is not None:
            factor = factor - _per_channel(weight_zero_point, o)
        if zero_point is None:
            read = x.padded(n, channel, *inside, pad=pad)
        else:
            read = _counted(x, (n, channel, *inside), zero_point[_first(zero_point)])
        return cast_to(factor.dtype, read) * factor

    return x.builder.reduce(
        f"conv{spatial}d",
        "sum",
        [x.shape[0], filters, *sizes],
        [*kernel, per_group],
        body,
        dtype=dtype or x.dtype,
        order=last,
    )


def channels_last(rank: int) -> tuple[int, ...]:
    """N, C, spatial stored as N, spatial, C."""
    return (0, *range(2, rank), 1)


def _group(o: Elem, each: int, groups: int) -> Elem:
    return constant(0, "int64") if groups == 1 else o // each


def _first(value: Value) -> tuple[Elem, ...]:
    return tuple(constant(0, "int64") for _ in value.shape)


def _per_channel(value: Value, o: Elem) -> Elem:
    return value[_first(value)] if value.elements == 1 else value[o]


def _counted(x: Value, places: Sequence[Elem], zero: Elem) -> Elem:
    """The element less its zero point inside of the tensor, 0 outside."""
    inside = constant(True, "bool")
    for place, extent in zip(places[2:], x.shape[2:], strict=True):
        inside = inside & (place >= 0) & (place < extent)
    return where(inside, x.guarded(*places) - zero, 0)


def convolution_transpose(
    x: Value,
    weight: Value,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    sizes: Sequence[int],
) -> Value:
    """The gradient of a convolution by its input: of x in N, C, spatial and weights in
    C, O / groups, spatial; `sizes` are the result's. Every output element sums the
    inputs that the strided convolution would have read it for."""
    spatial = x.rank - 2
    kernel = weight.shape[2:]
    per_group, each = x.shape[1] // groups, weight.shape[1]
    last = channels_last(x.rank)
    x = x.materialized(last)
    # The window is turned round, so that it runs forward over the input.
    weight = _turned(weight)
    weight = transpose(weight, [*range(2, weight.rank), 0, 1])

    def body(*places: Elem) -> Elem:
        n, o, *rest = places
        outer, window, c = rest[:spatial], rest[spatial : 2 * spatial], rest[-1]
        channel = _group(o, each, groups) * per_group + c
        filter_ = o if groups == 1 else o % each
        inside: list[Elem] = []
        hit = constant(True, "bool")
        for d in range(spatial):
            reach = dilations[d] * (kernel[d] - 1)
            spread = outer[d] + window[d] * dilations[d] + (pads[d] - reach)
            if strides[d] == 1:
                inside.append(spread)
                continue
            shift = -(-reach // strides[d]) * strides[d]  # keeps the remainder's operand positive
            hit = hit & ((spread + shift) % strides[d]).equals(0)
            inside.append((spread + shift) // strides[d] - shift // strides[d])
        product = x.padded(n, channel, *inside, pad=0) * weight[(*window, channel, filter_)]
        return product if hit.constant else where(hit, product, 0)

    return x.builder.reduce(
        f"conv{spatial}d_transpose",
        "sum",
        [x.shape[0], each * groups, *sizes],
        [*kernel, per_group],
        body,
        dtype=x.dtype,
        order=last,
    )


def convolution_weight_gradient(
    x: Value,
    gradient: Value,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> Value:
    """The gradient of a convolution by its weights, O, I / groups, spatial: of x in N, C,
    spatial and the gradient by the result in N, O, spatial. `pads` are those in front."""
    spatial = len(kernel)
    filters, per_group = gradient.shape[1], x.shape[1] // groups
    x, gradient = (value if value.whole else value.materialized() for value in (x, gradient))

    def body(*places: Elem) -> Elem:
        o, c, *rest = places
        window, n, outer = rest[:spatial], rest[spatial], rest[spatial + 1 :]
        channel = _group(o, filters // groups, groups) * per_group + c
        inside = [
            outer[d] * strides[d] + window[d] * dilations[d] - pads[d] for d in range(spatial)
        ]
        return x.padded(n, channel, *inside, pad=0) * gradient[(n, o, *outer)]

    shape, over = [filters, per_group, *kernel], [x.shape[0], *gradient.shape[2:]]
    return x.builder.reduce("conv_weights", "sum", shape, over, body, dtype=x.dtype)


def columns_to_image(
    x: Value,
    *,
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
) -> Value:
    """Sums blocks [N, C * kernel, blocks] into an image [N, C, *sizes] that they overlap
    in; what lies in the padding is dropped."""
    rank, count = len(kernel), prod(kernel)
    blocks = [
        (sizes[d] + pads[d] + pads[rank + d] - dilations[d] * (kernel[d] - 1) - 1) // strides[d] + 1
        for d in range(rank)
    ]
    parts = reshape(x, [x.shape[0], x.shape[1] // count, *kernel, *blocks])

    def body(*places: Elem) -> Elem:
        n, c, *rest = places
        outer, window = rest[:rank], rest[rank:]
        inside = []
        hit = constant(True, "bool")
        for d in range(rank):
            distance = outer[d] + pads[d] - window[d] * dilations[d]
            block = distance // strides[d]
            hit = hit & (distance % strides[d]).equals(0) & (block >= 0) & (block < blocks[d])
            inside.append(clamp(block, 0, blocks[d] - 1))
        return where(hit, parts[(n, c, *window, *inside)], 0)

    shape = [*parts.shape[:2], *sizes]
    return x.builder.reduce("columns_to_image", "sum", shape, kernel, body, dtype=x.dtype)


def _turned(weight: Value) -> Value:
    for axis in range(2, weight.rank):
        weight = flip(weight, axis)
    return weight
