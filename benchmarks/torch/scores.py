"""GraphNet's speedup score S(t) of a compiler (arXiv:2510.24035, appendix B).

S(t) = a^r b^(1-r), with a the geometric mean of the speedups against eager PyTorch where
outputs are right at the tolerance t, r the share of graphs where they are, and b = 0.1 what
counts for a graph that is wrong or fails. The penalty of slowdowns is none, as by default there.
Tolerances are those of its `graph_net_bench`, for which NaN is never right. A speedup is a ratio of
medians, as there. Graphs that eager PyTorch does not run are left out; there they count b.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

import torch

TOLERANCES = (-5, -3, -1)  # t
_FAILED = 0.1  # b
# Powers of ten of the relative and the absolute tolerance at t = -5, the defaults of PyTorch's
# own tests. Other dtypes must be equal.
_POWERS: Mapping[torch.dtype, tuple[float, float]] = {
    torch.float16: (-3, -5),
    torch.bfloat16: (-1.796, -5),
    torch.float32: (-5.886, -5),
    torch.float64: (-7, -7),
}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a compiler made of a graph."""

    speedup: float  # eager PyTorch's time of a call over the compiler's
    right_from: float  # the least of TOLERANCES at which outputs are right; infinity for none


FAILED = Outcome(speedup=0.0, right_from=math.inf)


def score(outcomes: Sequence[Outcome], t: int) -> float:
    """S(t). Raises ValueError for no outcomes."""
    if not outcomes:
        raise ValueError("a score needs at least one graph")
    right = [outcome.speedup for outcome in outcomes if outcome.right_from <= t]
    logarithms = [math.log(speedup) for speedup in right]
    logarithms += [math.log(_FAILED)] * (len(outcomes) - len(right))
    return math.exp(sum(logarithms) / len(outcomes))


def mean_speedup(outcomes: Sequence[Outcome]) -> float:
    """The geometric mean of the speedups of those that are right at a tolerance, of which there
    is one at least."""
    right = [outcome.speedup for outcome in outcomes if outcome.right_from < math.inf]
    return geometric_mean(right)


def right_from(got: Sequence[Any], right: Sequence[Any]) -> float:
    """The least of TOLERANCES at which all tensors are right; infinity for none."""
    if len(got) != len(right):
        return math.inf
    return next((t for t in TOLERANCES if all(map(_close, got, right, [t] * len(got)))), math.inf)


def _close(got: Any, right: Any, t: int) -> bool:
    if (got.shape, got.dtype) != (right.shape, right.dtype):
        return False
    if got.dtype not in _POWERS:
        return bool(torch.equal(got, right))
    relative, absolute = (10.0 ** (power * t / -5) for power in _POWERS[got.dtype])
    return bool(torch.allclose(got, right, rtol=relative, atol=absolute))
