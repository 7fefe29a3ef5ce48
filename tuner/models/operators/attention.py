"""Attention of several heads, and rotary positions.

Queries are [batch, heads, queries, width]; keys and values [batch, groups, keys, width],
each group of them for as many heads as divide evenly.
"""

from __future__ import annotations

from collections.abc import Callable

from tuner.models.operators.movement import reshape, transpose
from tuner.models.operators.normalization import softmax
from tuner.models.operators.scalars import Elem, unary, where
from tuner.models.operators.values import Value

# Of a scaled score and its batch, head, query and key: the score that softmax takes.
Mask = Callable[[Elem, Elem, Elem, Elem, Elem], Elem]


def attention(
    q: Value, k: Value, v: Value, *, scale: float, mask: Mask | None = None, softcap: float = 0
) -> tuple[Value, Value, Value]:
    """Vaswani et al., "Attention Is All You Need", 2017: the weighted values, the scores
    with their mask, and the weights."""
    builder, each = q.builder, q.shape[1] // k.shape[1]
    shape = [*q.shape[:3], k.shape[2]]

    def product(b: Elem, h: Elem, s: Elem, t: Elem, d: Elem) -> Elem:
        return q[b, h, s, d] * k[b, h // each, t, d]

    products = builder.reduce("scores", "sum", shape, [q.shape[3]], product, dtype=q.dtype)

    def score(b: Elem, h: Elem, s: Elem, t: Elem) -> Elem:
        e = products[b, h, s, t] * scale
        if softcap:
            e = unary("tanh", e * (1 / softcap)) * softcap
        return e if mask is None else mask(e, b, h, s, t)

    scores = builder.compute("mask", shape, score, dtype=q.dtype)
    weights = softmax(scores, [3])

    def weighted(b: Elem, h: Elem, s: Elem, d: Elem, t: Elem) -> Elem:
        return weights[b, h, s, t] * v[b, h // each, t, d]

    result = builder.reduce(
        "attention", "sum", [*q.shape[:3], v.shape[3]], [v.shape[2]], weighted, dtype=q.dtype
    )
    return result, scores, weights


def split_heads(x: Value, heads: int) -> Value:
    """[batch, sequence, heads * width] as [batch, heads, sequence, width]."""
    batch, length, size = x.shape
    return transpose(reshape(x, [batch, length, heads, size // heads]), [0, 2, 1, 3])


def merge_heads(x: Value) -> Value:
    """The inverse of `split_heads`."""
    batch, heads, length, width = x.shape
    return reshape(transpose(x, [0, 2, 1, 3]), [batch, length, heads * width])


def rotate(
    x: Value,
    position: Callable[[Elem, Elem], Elem],
    cosines: Value,
    sines: Value,
    *,
    width: int,
    interleaved: bool,
) -> Value:
    """Su et al., "RoFormer", 2021: pairs of the first `width` elements turned by an angle.

    x is [batch, heads, sequence, width or more]; `position` of batch and place in the
    sequence is the row of the tables [positions, width / 2]. Pairs are neighbours if
    `interleaved`, else half a width apart.
    """
    half = width // 2

    def body(b: Elem, h: Elem, s: Elem, d: Elem) -> Elem:
        inside = d % width
        if interleaved:
            number, partner = inside // 2, inside // 2 * 2 + (1 - inside % 2)
            is_first = (inside % 2).equals(0)
        else:
            number, partner = inside % half, (inside + half) % width
            is_first = inside < half
        row = position(b, s)
        e, other = x[b, h, s, d], x[b, h, s, partner]
        across = other * sines[row, number]
        rotated = e * cosines[row, number] + where(is_first, -across, across)
        return rotated if width == x.shape[3] else where(d < width, rotated, e)

    return x.builder.compute("rotate", x.shape, body, dtype=x.dtype)
