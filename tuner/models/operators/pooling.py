"""Pooling over windows of N, C, spatial."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.models.operators.elementwise import elementwise, same
from tuner.models.operators.movement import order_like
from tuner.models.operators.quantization import parameter
from tuner.models.operators.reduction import reduce
from tuner.models.operators.scalars import (
    Elem,
    cast_to,
    clamp,
    constant,
    maximum,
    minimum,
    unary,
    where,
)
from tuner.models.operators.values import Value
from tuner.workload.dtypes import FLOATS


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """How a window moves over the spatial dimensions. `sizes` are the result's extents;
    `ahead` is the padding in front, `behind` that at the end."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    ahead: tuple[int, ...]
    behind: tuple[int, ...]
    dilations: tuple[int, ...]
    sizes: tuple[int, ...]


def window(
    extents: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    *,
    ceil: bool,
) -> Window:
    """`pads` are those in front, then those behind. With `ceil` a last window may begin
    inside and end outside; none begins in the padding behind. A window that no place has
    room for is cut to the padded extent: networks pool whole pictures by windows of 1280."""
    rank = len(kernel)
    sizes, reached = [], []
    for d in range(rank):
        padded = extents[d] + pads[d] + pads[rank + d]
        reached.append(min(kernel[d], -(-padded // dilations[d])))
        room = padded - dilations[d] * (kernel[d] - 1) - 1
        size = (-(-room // strides[d]) if ceil else room // strides[d]) + 1
        if ceil and (size - 1) * strides[d] >= extents[d] + pads[d]:
            size -= 1
        sizes.append(size)
    return Window(
        kernel=tuple(reached),
        strides=tuple(strides),
        ahead=tuple(pads[:rank]),
        behind=tuple(pads[rank:]),
        dilations=tuple(dilations),
        sizes=tuple(sizes),
    )


def _places(w: Window, outer: Sequence[Elem], inner: Sequence[Elem]) -> list[Elem]:
    return [
        outer[d] * w.strides[d] + inner[d] * w.dilations[d] - w.ahead[d]
        for d in range(len(w.kernel))
    ]


def max_pool(x: Value, w: Window) -> Value:
    """Padding never wins."""
    rank = len(w.kernel)
    least = -math.inf if x.dtype in FLOATS else -(2**63)

    def body(*places: Elem) -> Elem:
        n, c, *rest = places
        inside = _places(w, rest[:rank], rest[rank:])
        return x.padded(n, c, *inside, pad=least)

    return x.builder.reduce(
        "max_pool",
        "max",
        [*x.shape[:2], *w.sizes],
        w.kernel,
        body,
        dtype=x.dtype,
        order=order_like([x], x.shape),
    )


def max_pool_positions(x: Value, w: Window, *, column_major: bool = False) -> Value:
    """Where the greatest element of each window stands in the whole input, counted over
    all dimensions; the first of equal ones. One node, as `reduction.arg_extreme` is."""
    rank = len(w.kernel)
    extents = x.shape[2:]

    def body(*places: Elem) -> Elem:
        n, c, *rest = places
        outer, inner = rest[:rank], rest[rank:]
        inside = _places(w, outer, inner)
        within = constant(True, "bool")
        for place, extent in zip(inside, extents, strict=True):
            within = within & (place >= 0) & (place < extent)
        position = constant(0, "int64")
        spatial = list(zip(inside, extents, strict=True))
        for place, extent in reversed(spatial) if column_major else spatial:
            position = position * extent + place
        plane = n * x.shape[1] + c
        position = plane * math.prod(extents) + position
        equal = same(x.guarded(n, c, *inside), pooled[(n, c, *outer)])
        return where(within & equal, position, 2**31 - 1)

    with x.builder.kernel("max_pool_positions"):
        pooled = max_pool(x, w)
        return x.builder.reduce(
            "max_pool_positions", "min", [*x.shape[:2], *w.sizes], w.kernel, body, dtype="int64"
        )


def average_pool(x: Value, w: Window, *, count_padding: bool, divisor: int | None = None) -> Value:
    """The mean of each window; padding counts as zeros where `count_padding`, but what
    `ceil` adds beyond it never counts. With a divisor the sum of each by that."""
    rank = len(w.kernel)
    counts = [_counts(w, x.shape[2 + d], d, count_padding=count_padding) for d in range(rank)]
    if divisor is not None:
        counts = [[divisor]]
    uniform = all(len(set(count)) == 1 for count in counts)
    order = order_like([x], x.shape)
    shape = [*x.shape[:2], *w.sizes]
    with x.builder.kernel("average_pool"):
        total = _window_sums(x, w, order)
        if uniform:
            share = 1 / math.prod(count[0] for count in counts)
            return elementwise("average_pool", lambda e: e * share, total)

        def averaged(*places: Elem) -> Elem:
            result = total[places]
            for d, place in enumerate(places[2:]):
                weights = x.builder.constant([1 / count for count in counts[d]], x.computed_in)
                result = result * weights[place]
            return result

        return x.builder.compute("average_pool", shape, averaged, dtype=x.dtype, order=order)


def _window_sums(x: Value, w: Window, order: Sequence[int]) -> Value:
    """The sum of each window, with zeros around x; of the integers that it is made of where
    there are such, so that nothing but these is read."""
    rank, shape = len(w.kernel), [*x.shape[:2], *w.sizes]
    integers = x.integers if x.array is None else None
    origin = None if integers is None or integers.axis is not None else integers.origin
    source = x if integers is None or origin is None else integers.value

    def body(*places: Elem) -> Elem:
        n, c, *rest = places
        return source.padded(n, c, *_places(w, rest[:rank], rest[rank:]), pad=origin or 0)

    dtype = source.dtype if source is x else "int32"
    total = x.builder.reduce("sum", "sum", shape, w.kernel, body, dtype=dtype, order=order)
    if integers is None or source is x:
        return total
    scale, zeros = parameter(integers.scale), [parameter(integers.zero)] if integers.zero else []

    def real(e: Elem, factor: Elem, *zero: Elem) -> Elem:
        for z in zero:  # also what is around x
            e = e - z * math.prod(w.kernel)
        return cast_to("float32", e) * factor

    return elementwise("sums", real, total, scale, *zeros, dtype="float32")


def _counts(w: Window, extent: int, d: int, *, count_padding: bool) -> list[int]:
    """Elements that count in each window of one dimension."""
    low = -w.ahead[d] if count_padding else 0
    high = extent + w.behind[d] if count_padding else extent
    begins = [step * w.strides[d] - w.ahead[d] for step in range(w.sizes[d])]
    return [
        max(
            sum(low <= begin + k * w.dilations[d] < high for k in range(w.kernel[d])),
            1,
        )
        for begin in begins
    ]


def adaptive_average(x: Value, axis: int, size: int) -> Value:
    """Means of `size` windows along a dimension, the k-th from floor(k e / size) up to
    ceil((k + 1) e / size) of e elements."""
    extent = x.shape[axis]
    begins = [number * extent // size for number in range(size)]
    ends = [-(-(number + 1) * extent // size) for number in range(size)]
    counts = [end - begin for begin, end in zip(begins, ends, strict=True)]
    shape = [size if number == axis else e for number, e in enumerate(x.shape)]

    def body(*places: Elem) -> Elem:
        *outer, k = places
        inside = [*outer]
        here = outer[axis]
        begin = here * extent // size
        inside[axis] = clamp(begin + k, 0, extent - 1)
        element = x[tuple(inside)]
        if len(set(counts)) == 1:
            return element * (1 / counts[0])
        count = x.builder.constant(counts, "int64")
        share = x.builder.constant([1 / n for n in counts], x.computed_in)
        return where(k < count[here], element * share[here], 0)

    order = order_like([x], x.shape)
    return x.builder.reduce(
        "adaptive_average", "sum", shape, [max(counts)], body, dtype=x.dtype, order=order
    )


def adaptive_max(x: Value, sizes: Sequence[int]) -> tuple[Value, Value]:
    """The greatest elements of windows that cover the last dimensions as `adaptive_average` has
    them, and the first place of each in these dimensions, counted over all of them."""
    first = x.rank - len(sizes)
    extents, shape = x.shape[first:], [*x.shape[:first], *sizes]
    reach = [
        max(-(-(n + 1) * extent // size) - n * extent // size for n in range(size))
        for extent, size in zip(extents, sizes, strict=True)
    ]

    def inside(places: Sequence[Elem]) -> list[Elem]:
        """A place in a window; behind its end the last one again."""
        read = [*places[: x.rank]]
        for d, (extent, size) in enumerate(zip(extents, sizes, strict=True)):
            here = read[first + d]
            end = ((here + 1) * extent + (size - 1)) // size
            place = minimum(here * extent // size + places[x.rank + d], end - 1)
            read[first + d] = clamp(place, 0, extent - 1)
        return read

    def position(*places: Elem) -> Elem:
        read, number = inside(places), constant(0, "int64")
        for place, extent in zip(read[first:], extents, strict=True):
            number = number * extent + place
        return where(same(x[tuple(read)], top[places[: x.rank]]), number, 2**31 - 1)

    def greatest() -> Value:
        return x.builder.reduce(
            "adaptive_max", "max", shape, reach, lambda *i: x[tuple(inside(i))], dtype=x.dtype
        )

    with x.builder.kernel("positions"):
        top = greatest()
        positions = x.builder.reduce("positions", "min", shape, reach, position, dtype="int64")
    return greatest(), positions


def lp_pool(x: Value, w: Window, p: int) -> Value:
    rank = len(w.kernel)

    def body(*places: Elem) -> Elem:
        n, c, *rest = places
        e = x.padded(n, c, *_places(w, rest[:rank], rest[rank:]), pad=0)
        return e * e if p == 2 else unary("abs", e) if p == 1 else unary("abs", e) ** float(p)

    with x.builder.kernel("lp_pool"):
        shape = [*x.shape[:2], *w.sizes]
        total = x.builder.reduce(
            "sum", "sum", shape, w.kernel, body, dtype=x.dtype, order=order_like([x], x.shape)
        )
        if p == 1:
            return total
        return elementwise("lp_pool", lambda e: unary("sqrt", e) if p == 2 else e ** (1 / p), total)


def global_pool(x: Value, *, greatest: bool) -> Value:
    """Over all spatial dimensions, which stay as units."""
    axes = range(2, x.rank)
    if greatest:
        return reduce("global_max_pool", "max", x, axes, keep=True)
    count = math.prod(x.shape[2:])
    with x.builder.kernel("global_average_pool"):
        total = reduce("sum", "sum", x, axes, keep=True)
        return elementwise("global_average_pool", lambda e: e * (1 / count), total)


def max_unpool(
    x: Value,
    positions: Value,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    sizes: Sequence[int],
) -> Value:
    """The elements of x at the positions where max pooling found them, zeros elsewhere.

    Positions count over all dimensions of the result [N, C, *sizes], and lie in the window
    that an element comes from. The last of those that share a position stays.
    """
    rank = len(kernel)
    extents = x.shape[2:]
    reach = [-(-kernel[d] // strides[d]) for d in range(rank)]

    def source(outer: Sequence[Elem], steps: Sequence[Elem]) -> tuple[list[Elem], Elem]:
        """Of an element of the result, one of the windows over it, and whether it exists."""
        places, is_inside = [], constant(True, "bool")
        for d in range(rank):
            place = (outer[d] + pads[d]) // strides[d] - steps[d]
            is_inside = is_inside & (place >= 0) & (place < extents[d])
            places.append(clamp(place, 0, extents[d] - 1))
        return places, is_inside

    def flat(places: Sequence[Elem], shape: Sequence[int]) -> Elem:
        number = constant(0, "int64")
        for place, extent in zip(places, shape, strict=True):
            number = number * extent + place
        return number

    def last(*i: Elem) -> Elem:
        n, c, *rest = i
        outer = rest[:rank]
        places, is_inside = source(outer, rest[rank:])
        here = flat((n, c, *outer), (*x.shape[:2], *sizes))
        is_hit = is_inside & positions[(n, c, *places)].equals(here)
        return where(is_hit, flat(places, extents), -1)

    shape = [*x.shape[:2], *sizes]
    chosen = x.builder.reduce("unpool_source", "max", shape, reach, last, dtype="int64")

    def body(*i: Elem) -> Elem:
        number = chosen[i]
        rest = maximum(number, 0)
        places: list[Elem] = []
        for extent in reversed(extents):
            places.insert(0, clamp(rest % extent, 0, extent - 1))
            rest = rest // extent
        return where(number >= 0, x[(*i[:2], *places)], 0)

    return x.builder.compute("max_unpool", shape, body, dtype=x.dtype)


def pool_gradient(
    gradient: Value,
    w: Window,
    extents: Sequence[int],
    places: Value | None = None,
) -> Value:
    """Sums, for each element of the input of these extents, the gradients of the windows that
    it lies in; with `places` of those alone whose greatest element it is."""
    rank = len(w.kernel)

    def body(*indices: Elem) -> Elem:
        n, c, *rest = indices
        outer, inner = rest[:rank], rest[rank:]
        hit, blocks = constant(True, "bool"), []
        position = constant(0, "int64")
        for d in range(rank):
            distance = outer[d] + w.ahead[d] - inner[d] * w.dilations[d]
            block = distance // w.strides[d]
            hit = hit & (distance % w.strides[d]).equals(0)
            hit = hit & (block >= 0) & (block < w.sizes[d])
            blocks.append(clamp(block, 0, w.sizes[d] - 1))
            position = position * extents[d] + outer[d]
        if places is not None:
            hit = hit & places[(n, c, *blocks)].equals(position)
        return where(hit, gradient[(n, c, *blocks)], 0)

    shape = [*gradient.shape[:2], *extents]
    return gradient.builder.reduce(
        "pool_gradient", "sum", shape, w.kernel, body, dtype=gradient.dtype
    )


def average_weights(x: Value, w: Window, *, count_padding: bool) -> Value:
    """One over the elements that count in each window, a constant of the result's spatial
    extents."""
    total = np.ones((), np.float64)
    for d in range(len(w.kernel)):
        counts = _counts(w, x.shape[2 + d], d, count_padding=count_padding)
        total = np.multiply.outer(total, np.asarray(counts, np.float64))
    return x.builder.constant(1 / total, x.computed_in)
