"""How far a quantised network's outputs are from those of the float one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tuner.models.arrays import Array


def loss_of(runs: Sequence[Sequence[Array]], right: Sequence[Sequence[Array]]) -> float:
    """The error of outputs over all runs, relative to the right ones: the root of the sum
    of squares by that of the right outputs', of the output where it is greatest. Of
    integers it is the share that differs. At most 1, also where something is no number."""
    worst = 0.0
    for got, expected in zip(zip(*runs, strict=True), zip(*right, strict=True), strict=True):
        if expected[0].dtype.kind != "f":
            counted = sum(a.size for a in expected)
            apart = sum(int((a != b).sum()) for a, b in zip(got, expected, strict=True))
            worst = max(worst, apart / max(counted, 1))
            continue
        pairs = [
            (a.astype(np.float64), b.astype(np.float64)) for a, b in zip(got, expected, strict=True)
        ]
        error = sum(float(np.square(a - b).sum()) for a, b in pairs)
        whole = sum(float(np.square(b).sum()) for _, b in pairs)
        if error > 0 or math.isnan(error):
            ratio = error / whole if whole else math.inf
            worst = max(worst, min(math.sqrt(ratio), 1.0) if ratio < math.inf else 1.0)
    return worst


def agreement_of(runs: Sequence[Sequence[Array]], right: Sequence[Sequence[Array]]) -> float | None:
    """The share of rows of the first output whose greatest element is at the same place;
    None where it has no rows of several numbers."""
    expected = [outputs[0] for outputs in right]
    if expected[0].dtype.kind != "f" or expected[0].ndim < 2 or expected[0].shape[-1] < 2:
        return None
    same = [
        a[0].argmax(-1).reshape(-1) == b.argmax(-1).reshape(-1)
        for a, b in zip(runs, expected, strict=True)
    ]
    return float(np.concatenate(same).mean())
