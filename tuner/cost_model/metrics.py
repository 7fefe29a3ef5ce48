"""How good a ranking is: the share of pairs it orders right, how many of the best it
finds, and rank correlation.

Labels are best/median time within a group, failures 0; scores are any numbers, higher
meaning faster.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_APART = (
    0.05  # pairs closer than this are noise, not order (Ansor, arXiv 2006.06762, judges pairs too)
)
_BLOCK = 1024  # rows compared with all others at a time, so that memory stays at tens of MB


def pairwise_accuracy(
    scores: ArrayLike, labels: ArrayLike, groups: ArrayLike | None = None, *, apart: float = _APART
) -> float:
    """Share of pairs of valid rows of one group, times at least `apart` different, that
    the scores order right; ties count half.

    0.5 when there is no such pair, as nothing speaks for or against the ranking.
    """
    scores, labels = np.asarray(scores, np.float64), np.asarray(labels, np.float64)
    groups = np.zeros(len(labels), np.int64) if groups is None else np.asarray(groups)
    right = total = 0.0
    for group in np.unique(groups):
        rows = (groups == group) & (labels > 0)
        hits, pairs = _ordered_pairs(scores[rows], labels[rows], apart)
        right, total = right + hits, total + pairs
    return right / total if total else 0.5


def _ordered_pairs(scores: NDArray[Any], labels: NDArray[Any], apart: float) -> tuple[float, float]:
    right = total = 0.0
    for start in range(0, len(labels), _BLOCK):
        block = slice(start, start + _BLOCK)
        faster = labels[block, None] >= labels[None, :] * (1.0 + apart)
        difference = scores[block, None] - scores[None, :]
        right += float(np.sum(faster & (difference > 0))) + 0.5 * float(
            np.sum(faster & (difference == 0))
        )
        total += float(np.sum(faster))
    return right, total


def recall_at(k: int, scores: ArrayLike, labels: ArrayLike) -> float:
    """Share of the k best rows of one group that stand among the k highest scores; k is
    lowered to the number of valid rows."""
    scores, labels = np.asarray(scores), np.asarray(labels)
    k = min(k, int(np.sum(labels > 0)))
    if not k:
        return 0.0
    best = set(np.argsort(-labels, kind="stable")[:k].tolist())
    chosen = set(np.argsort(-scores, kind="stable")[:k].tolist())
    return len(best & chosen) / k


def spearman(scores: ArrayLike, labels: ArrayLike) -> float | None:
    """Rank correlation of one group, ties averaged; None where either side is constant
    or fewer than three rows are given."""
    a, b = _ranks(np.asarray(scores)), _ranks(np.asarray(labels))
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def kendall_tau(scores: ArrayLike, labels: ArrayLike) -> float:
    """Kendall's tau-a of two rows or more: pairs in the same order less those in the other,
    of all."""
    left, right = np.asarray(scores), np.asarray(labels)
    above = np.triu_indices(len(left), 1)
    signs = np.sign(left[:, None] - left)[above] * np.sign(right[:, None] - right)[above]
    return float(signs.mean())


def _ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    middle: NDArray[np.float64] = last - (counts - 1) / 2.0
    return middle[inverse]
