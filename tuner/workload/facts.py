"""Facts about integer inputs: which can be stated, and arrays that have them.

The rows of a compressed pattern and the columns it names are drawn apart: the place of an
element in its tensor stands for the row it is in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.workload.dtypes import INTEGER_RANGES
from tuner.workload.expression import Splits, Tensor, Within

FACT_DTYPES = ("int32", "int64")  # of inputs that facts are stated of
_BAND = 1 / 64  # deviation from the diagonal, as a share of its length
_EXPONENT = 1.0  # of the power law: the share of the n-th is proportional to 1/n (Zipf)
_RUN = 16  # neighbours


def fact_error(tensor: Tensor) -> str | None:
    """Why a fact cannot be stated of a tensor; None if it can."""
    if tensor.fact is None:
        return None
    if tensor.dtype not in FACT_DTYPES:
        return (
            f"{tensor.name} is of {tensor.dtype}; facts are stated of {' and '.join(FACT_DTYPES)}"
        )
    low, high = INTEGER_RANGES[tensor.dtype]
    match tensor.fact:
        case Within(start=start, stop=stop) if not (
            low <= start < stop <= high and stop - start <= high
        ):
            return (
                f"the range {start}:{stop} of {tensor.name} is empty or does not fit "
                f"{tensor.dtype}; it holds {start} and ends before {stop}"
            )
        case Splits(stop=stop) if not 0 < stop < high:
            return f"{tensor.name} splits {stop} places; {tensor.dtype} counts 1 to {high - 1}"
        case Splits() if len(tensor.shape) != 1 or tensor.shape[0] < 2:
            return (
                f"{tensor.name} has shape {list(tensor.shape)}; what splits places into rows has "
                f"one dimension, with an element more than there are rows"
            )
    return None


def drawn(rng: np.random.Generator, tensor: Tensor) -> NDArray[Any]:
    """An array of the tensor's shape and dtype that has its fact, as trials draw it."""
    match tensor.fact:
        case Splits():
            return _pointers(rng, tensor.shape[0] - 1, tensor.fact).astype(tensor.dtype)
        case Within():
            size = int(np.prod(tensor.shape))
            return _places(rng, size, tensor.fact).reshape(tensor.shape).astype(tensor.dtype)
    raise ValueError(f"{tensor.name} has no fact")


def constant(tensor: Tensor) -> NDArray[Any]:
    """The array with the tensor's fact whose elements are as small as they can be."""
    least = tensor.fact.start if isinstance(tensor.fact, Within) else 0
    return np.full(tensor.shape, least, tensor.dtype)


def _pointers(rng: np.random.Generator, rows: int, fact: Splits) -> NDArray[np.int64]:
    """Pointers of `rows` rows, which together have all places."""
    if fact.lengths == "equal":
        return np.arange(rows + 1, dtype=np.int64) * fact.stop // rows
    shares = (
        rng.permutation(_zipf(rows)) if fact.lengths == "power_law" else np.full(rows, 1 / rows)
    )
    lengths = rng.multinomial(fact.stop, shares)
    return np.concatenate([[0], np.cumsum(lengths)])


def _places(rng: np.random.Generator, size: int, fact: Within) -> NDArray[np.int64]:
    count = fact.stop - fact.start
    match fact.spread:
        case "uniform":
            offsets = rng.integers(0, count, size)
        case "sorted":
            offsets = np.sort(rng.integers(0, count, size))
        case "banded":
            diagonal = (np.arange(size) + 0.5) * (count / size)
            offsets = np.rint(diagonal + rng.standard_normal(size) * (_BAND * count))
        case "power_law":
            order = rng.permutation(count)
            ranks = np.searchsorted(np.cumsum(_zipf(count)), rng.random(size))
            offsets = order[np.minimum(ranks, count - 1)]
        case "runs":
            first = rng.integers(0, count, -(-size // _RUN))
            offsets = (np.repeat(first, _RUN)[:size] + np.arange(size) % _RUN) % count
    return fact.start + np.clip(offsets, 0, count - 1).astype(np.int64)


def _zipf(count: int) -> NDArray[np.float64]:
    shares = 1.0 / np.arange(1, count + 1) ** _EXPONENT
    return np.asarray(shares / shares.sum())
