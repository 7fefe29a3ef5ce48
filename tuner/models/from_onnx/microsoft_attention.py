"""Attention and embeddings of the domain `com.microsoft`, which ONNX Runtime's optimiser
writes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tuner.models.from_onnx.node import Convert, Node, Results
from tuner.models.operators import attention as ops
from tuner.models.operators import normalization as norms
from tuner.models.operators.contraction import matmul
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.indexing import gather, position, write_slices
from tuner.models.operators.movement import along, concatenate, pad, reshape, transpose, unsqueeze
from tuner.models.operators.reduction import reduce
from tuner.models.operators.scalars import Elem, cast_to, clamp, constant, where
from tuner.models.operators.values import Value

_MASKED = -10000.0  # added to a score by default
_LOWEST = -3.4028234663852886e38  # of a score that causality rules out


def _scale(node: Node, width: int) -> float:
    return float(node.attribute("scale", 0.0)) or 1 / math.sqrt(width)


def _is_kept(node: Node, mask: Value, batch: int) -> Callable[[Elem, Elem, Elem], Elem]:
    """Of batch, query and key: whether a mask of any of the operator's forms keeps the key."""
    if mask.rank == 1 and mask.elements == batch:  # how many keys there are
        return lambda b, s, t: t < cast_to("int64", mask[b])
    if mask.rank == 1 and mask.elements == 2 * batch:  # the ends, then the begins
        return lambda b, s, t: (
            (t < cast_to("int64", mask[b])) & (t >= cast_to("int64", mask[b + batch]))
        )
    if mask.rank == 2:
        return lambda b, s, t: mask[b, t] > 0
    if mask.rank == 3:
        return lambda b, s, t: mask[b, s, t] > 0
    raise node.refusal(f"has a mask of shape {list(mask.shape)}")


def _mask(node: Node, q: Value, given: Value | None, bias: Value | None, past: int) -> ops.Mask:
    """What the operator adds to scores; `past` keys come before those of the queries."""
    keep = None if given is None else _is_kept(node, given, q.shape[0])
    filtered = float(node.attribute("mask_filter_value", 0.0)) or _MASKED
    is_causal = bool(node.attribute("unidirectional", 0))

    def mask(score: Elem, b: Elem, h: Elem, s: Elem, t: Elem) -> Elem:
        if keep is not None:
            score = score + where(keep(b, s, t), constant(0, score.dtype), filtered)
        if bias is not None:
            zero = constant(0, "int64")
            batch, head = (
                zero if extent == 1 else place
                for extent, place in zip(bias.shape[:2], (b, h), strict=True)
            )
            score = score + cast_to(score.dtype, bias[batch, head, s, t])
        return where(t <= s + past, score, _LOWEST) if is_causal else score

    return mask


def _after(past: Value | None, new: Value) -> Value:
    return new if past is None or not past.elements else concatenate([past, new], 2)


def _attended(node: Node, q: Value, k: Value, v: Value, mask: ops.Mask) -> tuple[Value, Value]:
    result, scores, _ = ops.attention(q, k, v, scale=_scale(node, q.shape[3]), mask=mask)
    return ops.merge_heads(result), scores


def projected_attention(
    node: Node, product: Value, mask: Value | None, past: Value | None, bias: Value | None
) -> Results:
    """Of queries, keys and values beside each other, [batch, sequence, their sizes]; the
    past is [2, batch, heads, keys, width]."""
    if node.attribute("do_rotary", 0) or node.attribute("past_present_share_buffer", 0):
        raise node.refusal("rotates its heads, or shares a buffer with its past")
    heads = node.attribute("num_heads", 1)
    sizes = list(node.attribute("qkv_hidden_sizes", None) or [product.shape[2] // 3] * 3)
    begins = [0, sizes[0], sizes[0] + sizes[1]]
    q, k, v = (
        ops.split_heads(along(product, 2, begin, size), heads)
        for begin, size in zip(begins, sizes, strict=True)
    )
    before = 0
    if past is not None and past.elements:
        before = past.shape[3]
        k, v = (
            _after(reshape(along(past, 0, number, 1), past.shape[1:]), value)
            for number, value in enumerate((k, v))
        )
    result, _ = _attended(node, q, k, v, _mask(node, q, mask, bias, before))
    if len(node.outputs) < 2:
        return result
    return result, concatenate([unsqueeze(k, [0]), unsqueeze(v, [0])], 0)


def attention(node: Node) -> Results:
    product = matmul(node[0], node[1])
    if (bias := node.optional(2)) is not None:
        product = elementwise("bias", lambda e, b: e + b, product, bias)
    return projected_attention(node, product, node.optional(3), node.optional(4), node.optional(5))


def multi_head_attention(node: Node) -> Results:
    heads = node.attribute("num_heads", 1)
    q, k, v = _heads_of_inputs(node, heads)
    if node.optional(9) is not None:
        raise node.refusal("searches beams by an indirection of its cache")
    past_k, past_v = node.optional(6), node.optional(7)
    before = 0 if past_k is None else past_k.shape[2]
    k, v = _after(past_k, k), _after(past_v, v)
    mask = _mask(node, q, node.optional(4), node.optional(5), before)
    result, scores = _attended(node, q, k, v, mask)
    return [result, k, v, scores][: len(node.outputs)]


def _heads_of_inputs(node: Node, heads: int) -> tuple[Value, Value, Value]:
    """Queries, keys and values with the bias of their projections, from any packing."""
    query, key, value, bias = node[0], node.optional(1), node.optional(2), node.optional(3)
    parts: list[Value] = []
    if query.rank == 5:  # batch, sequence, head, 3, width
        parts = [_packed(query, number) for number in range(3)]
    elif key is not None and key.rank == 5:
        parts = [ops.split_heads(query, heads), *(_packed(key, number) for number in range(2))]
    elif key is not None and value is not None:
        parts = [
            other if other.rank == 4 else ops.split_heads(other, heads)
            for other in (query, key, value)
        ]
    else:
        raise node.refusal("has no keys")
    if bias is None:
        return parts[0], parts[1], parts[2]
    begin, biased = 0, []
    for part, given in zip(parts, (query, key, value), strict=True):
        width = part.shape[3]
        shape = [1, heads, 1, width]
        vector = reshape(along(bias, 0, begin, heads * width), shape)
        begin += heads * width
        is_cache = given is not None and given.rank == 4
        biased.append(part if is_cache else elementwise("bias", lambda e, b: e + b, part, vector))
    return biased[0], biased[1], biased[2]


def _packed(x: Value, number: int) -> Value:
    batch, length, heads, _, width = x.shape
    part = reshape(along(x, 3, number, 1), [batch, length, heads, width])
    return transpose(part, [0, 2, 1, 3])


def group_query_attention(node: Node) -> Results:
    """Keys and values are written into the past where it ends in each of the batch."""
    names = {11: "a sink", 12: "a quantised past", 13: "a quantised past", 16: "padded queries"}
    for place, name in names.items():
        if node.optional(place) is not None:
            raise node.refusal(f"has {name}")
    if node.attribute("smooth_softmax", 0) == 1 or node.attribute("sliding_window_cache", 0):
        raise node.refusal("smooths its softmax, or keeps a window of its past")
    heads, groups = node.attribute("num_heads", 1), node.attribute("kv_num_heads", 1)
    q, k, v = _grouped(node, heads, groups)
    length = q.shape[2]
    lengths, total = node[5], int(node.scalar(6, length))
    is_prompt = total == length

    def begin(b: Elem) -> Elem:
        """How many keys come before those of the queries."""
        if is_prompt:
            return constant(0, "int64")
        return clamp(clamp(cast_to("int64", lengths[b]), 0, total) + (1 - length), 0, total)

    q, k = _normalized(node, q, k)
    if node.attribute("do_rotary", 0):
        q, k = _rotated(node, q, begin), _rotated(node, k, begin)
    past_k, past_v = node.optional(3), node.optional(4)
    starts = node.builder.compute("past", [q.shape[0]], begin, dtype="int64")
    k, v = _written(past_k, k, starts, total), _written(past_v, v, starts, total)
    window = node.attribute("local_window_size", -1)
    is_causal, bias = node.attribute("causal", 1), node.optional(10)

    def mask(score: Elem, b: Elem, h: Elem, s: Elem, t: Elem) -> Elem:
        if bias is not None:
            zero = constant(0, "int64")
            batch, head = (
                zero if extent == 1 else place
                for extent, place in zip(bias.shape[:2], (b, h), strict=True)
            )
            score = score + cast_to(
                score.dtype, bias[batch, head, s, clamp(t, 0, bias.shape[3] - 1)]
            )
        last = s + starts[b] if is_causal else cast_to("int64", lengths[b])
        is_kept = t <= last
        if window > 0:
            is_kept = is_kept & (t > last - window)
        return where(is_kept, score, -math.inf)

    scale, cap = _scale(node, q.shape[3]), float(node.attribute("softcap", 0.0))
    result, _, _ = ops.attention(q, k, v, scale=scale, mask=mask, softcap=cap)
    if len(node.outputs) > 3 and node.outputs[3]:
        raise node.refusal("gives its scores")
    return [ops.merge_heads(result), k, v][: max(len(node.outputs), 1)]


def _grouped(node: Node, heads: int, groups: int) -> tuple[Value, Value, Value]:
    query, key, value = node[0], node.optional(1), node.optional(2)
    if key is not None and value is not None:
        return (
            ops.split_heads(query, heads),
            ops.split_heads(key, groups),
            ops.split_heads(value, groups),
        )
    width = query.shape[2] // (heads + 2 * groups)
    begins = [0, heads * width, (heads + groups) * width]
    q, k, v = (
        ops.split_heads(along(query, 2, begin, count * width), count)
        for begin, count in zip(begins, (heads, groups, groups), strict=True)
    )
    return q, k, v


def _normalized(node: Node, q: Value, k: Value) -> tuple[Value, Value]:
    """Each head divided by its root mean square, where the operator has weights for it."""
    epsilon = float(node.attribute("qk_norm_epsilon", 1e-6))
    q_scale, k_scale = node.optional(14), node.optional(15)
    if q_scale is not None:
        q = norms.rms_norm(q, [3], q_scale, float(node.attribute("q_norm_epsilon", epsilon)))
    if k_scale is not None:
        k = norms.rms_norm(k, [3], k_scale, float(node.attribute("k_norm_epsilon", epsilon)))
    return q, k


def _rotated(node: Node, x: Value, begin: Callable[[Elem], Elem]) -> Value:
    cosines, sines, given = node[7], node[8], node.optional(9)

    def row(b: Elem, s: Elem) -> Elem:
        if given is None:
            return clamp(begin(b) + s, 0, cosines.shape[0] - 1)
        return position(given[b, s], cosines.shape[0])

    is_interleaved = bool(node.attribute("rotary_interleaved", 0))
    width = 2 * cosines.shape[1]
    return ops.rotate(x, row, cosines, sines, width=width, interleaved=is_interleaved)


def _written(past: Value | None, new: Value, starts: Value, total: int) -> Value:
    if past is None or not past.elements:
        return new
    missing = max(total - past.shape[2], 0)
    room = pad(past, [0] * 4, [0, 0, missing, 0], "constant")
    return write_slices(room, new, starts, 2, circular=False)


def rotary_embedding(node: Node) -> Value:
    x, places, cosines, sines = node[0], node[1], node[2], node[3]
    if node.attribute("scale", 1.0) != 1.0 or node.attribute("is_packed_batching", 0):
        raise node.refusal("scales its positions, or packs its batch")
    width = node.attribute("rotary_embedding_dim", 0) or 2 * cosines.shape[1]
    heads = node.attribute("num_heads", 0)
    if x.rank == 3 and not heads:
        heads = x.shape[2] // width
    split = x if x.rank == 4 else ops.split_heads(x, heads)

    def row(b: Elem, s: Elem) -> Elem:
        """The position of the first, or of each."""
        rows = cosines.shape[0]
        if places.elements > 1:
            return position(places[b, s], rows)
        first = position(places[(constant(0, "int64"),) * places.rank], rows)
        return clamp(first + s, 0, rows - 1)

    is_interleaved = bool(node.attribute("interleaved", 0))
    result = ops.rotate(split, row, cosines, sines, width=width, interleaved=is_interleaved)
    return result if x.rank == 4 else ops.merge_heads(result)


def embed_layer_norm(node: Node) -> Results:
    """Embeddings of words, positions and segments, added and normalised."""
    ids, segments, words, places = node[0], node.optional(1), node[2], node[3]
    table, mask, given = node.optional(4), node.optional(7), node.optional(8)
    values = [gather(words, ids, 0)]
    if given is not None:
        values.append(gather(places, given, 0))
    else:
        values.append(unsqueeze(along(places, 0, 0, ids.shape[1]), [0]))
    if segments is not None and table is not None:
        values.append(gather(table, segments, 0))

    def added(*elements: Elem) -> Elem:
        total = elements[0]
        for element in elements[1:]:
            total = total + element
        return total

    total = elementwise("embedding", added, *values)
    epsilon = float(node.attribute("epsilon", 1e-12))
    result = norms.layer_norm(total, [2], node[5], node[6], epsilon)
    counts: Value | None = None
    if mask is not None:
        counts = reduce("words", "sum", mask, [1], keep=False, dtype="int32")
    elif len(node.outputs) > 1:
        counts = node.builder.constant([0] * ids.shape[0], "int32")
    return [result, counts, total][: len(node.outputs)]


TABLE: Mapping[str, Convert] = {
    "Attention": attention,
    "EmbedLayerNormalization": embed_layer_norm,
    "GroupQueryAttention": group_query_attention,
    "MultiHeadAttention": multi_head_attention,
    "RotaryEmbedding": rotary_embedding,
}
