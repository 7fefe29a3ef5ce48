"""PyTorch's attention for CPUs in training, taken apart: with what its derivative reads, and that.

The derivative is that of FlashAttention (Dao et al., 2022, algorithm 4), with whole matrices of
weights: P = exp(S - L) for scores S and their logarithmic sums L of rows, dP = dO V', and
dS = P (dP - rowsum(dO O)).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch._prims_common import get_computation_dtype

# Scores of which derivatives keep a matrix: beyond, PyTorch's kernel, which keeps none, is faster.
MOST_SCORES = 1 << 22


def rules() -> Mapping[Any, Callable[..., Any]]:
    """Of the operator and its derivative."""
    aten = torch.ops.aten
    forward = aten._scaled_dot_product_flash_attention_for_cpu.default
    weighted = get_decompositions([forward])[forward]

    def attention(
        q: Any,
        k: Any,
        v: Any,
        dropout: float = 0.0,
        is_causal: bool = False,
        *,
        attn_mask: Any = None,
        scale: float | None = None,
    ) -> Any:
        values, _ = weighted(q, k, v, dropout, is_causal, attn_mask=attn_mask, scale=scale)
        if _is_left(q, k, dropout, scale):
            return values, None
        sums = _scores(q, k, is_causal, attn_mask, scale).logsumexp(-1)
        return values, sums

    derivative = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    return {forward: attention, derivative: _derivative}


def _derivative(
    gradient: Any,
    q: Any,
    k: Any,
    v: Any,
    values: Any,
    sums: Any,
    dropout: float,
    is_causal: bool,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
) -> Any:
    if _is_left(q, k, dropout, scale):
        return NotImplemented
    wide = get_computation_dtype(q.dtype)
    scores = _scores(q, k, is_causal, attn_mask, scale)
    sums = sums.unsqueeze(-1)
    # Of a row that the mask leaves nothing of there are no weights.
    weights = torch.where(sums == -torch.inf, 0.0, (scores - sums).exp())
    gradient, values = gradient.to(wide), values.to(wide)
    of_weights = gradient @ v.to(wide).transpose(-2, -1)
    of_rows = (gradient * values).sum(-1, keepdim=True)
    of_scores = weights * (of_weights - of_rows) * _scale(q, scale)
    of_q, of_k, of_v = (
        of_scores @ k.to(wide),
        of_scores.transpose(-2, -1) @ q.to(wide),
        weights.transpose(-2, -1) @ gradient,
    )
    return of_q.to(q.dtype), of_k.to(k.dtype), of_v.to(v.dtype)


def _is_left(q: Any, k: Any, dropout: float, scale: float | None) -> bool:
    """Whether the derivative is PyTorch's: with random numbers, shared keys, a scale without a
    root, many scores."""
    rare = dropout or q.shape[1] != k.shape[1] or _scale(q, scale) < 0
    return bool(rare or prod(q.shape[:-1]) * k.shape[-2] > MOST_SCORES)


def _scale(q: Any, given: float | None) -> float:
    return float(q.shape[-1] ** -0.5 if given is None else given)


def _scores(q: Any, k: Any, is_causal: bool, mask: Any, scale: float | None) -> Any:
    """As PyTorch's attention by parts computes them: both have this product once."""
    wide, root = get_computation_dtype(q.dtype), _scale(q, scale) ** 0.5
    scores = (q.to(wide) * root) @ (k.to(wide).transpose(-2, -1) * root)
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    if mask is None:
        return scores
    if mask.dtype == torch.bool:
        return torch.where(mask, scores, -torch.inf)
    return scores + mask
