"""A sparse matrix as the parameters of an operator: its extents, density and distributions.

A pattern is described by the distribution of row lengths and that of columns. Of those that
trials can draw, the ones are named that look most like the matrix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from tuner.errors import WorkloadError
from tuner.workload.catalogue import operator
from tuner.workload.expression import Lengths, Splits, Spread, Tensor, Within
from tuner.workload.facts import drawn
from tuner.workload.operator import Value

_FREQUENT = 0.01  # share of the numbers that are counted as the most frequent


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """The places of a matrix in compressed rows."""

    shape: tuple[int, int]
    pointers: NDArray[Any]  # of the rows, with one more
    columns: NDArray[Any]
    index: str  # dtype of both
    dtype: str  # of the values

    @property
    def places(self) -> int:
        return len(self.columns)


def pattern_of(matrix: Any) -> Pattern:
    """The pattern of a SciPy sparse matrix or array, or of a PyTorch tensor in CSR.

    Raises `WorkloadError` for anything else, and for a matrix without places.
    """
    if isinstance(matrix, Pattern):
        return matrix
    if str(getattr(matrix, "layout", "")) == "torch.sparse_csr":
        dtype = str(matrix.dtype).removeprefix("torch.")
        pointers, columns = matrix.crow_indices().numpy(), matrix.col_indices().numpy()
        return compressed(matrix.shape, pointers, columns, dtype)
    if hasattr(matrix, "tocsr"):
        rows = matrix.tocsr()
        return compressed(rows.shape, rows.indptr, rows.indices, rows.dtype.name)
    raise WorkloadError(
        f"a pattern is a SciPy sparse matrix or a PyTorch tensor of compressed rows "
        f"(to_sparse_csr), not a {type(matrix).__name__}",
        parameter="pattern",
    )


def spec_of_pattern(spec: str, matrix: Any) -> str:
    """The spec with the parameters that a matrix says, unless it has them itself.

    Raises `WorkloadError` as `pattern_of` and `pattern_params` do, and for extents or a
    density beside the matrix.
    """
    op, _, rest = spec.strip().partition(":")
    own = [item for item in rest.split(",") if item.strip()]
    names = {item.partition("=")[0].strip() for item in own}
    said = pattern_params(op.strip(), pattern_of(matrix))
    if stated := sorted(names & {"M", "N", "density"}):
        raise WorkloadError(
            f"{stated[0]} is given by the pattern; leave it out", parameter=stated[0]
        )
    added = [f"{name}={value}" for name, value in said.items() if name not in names]
    return f"{op}:{','.join([*added, *own])}"


def compressed(
    shape: Iterable[int], pointers: NDArray[Any], columns: NDArray[Any], dtype: str
) -> Pattern:
    """The pattern of compressed rows. Raises `WorkloadError` for what are none."""
    extents = tuple(int(extent) for extent in shape)
    if len(extents) != 2:
        raise WorkloadError(
            f"a pattern has 2 dimensions, this has shape {list(extents)}", parameter="pattern"
        )
    index = columns.dtype.name
    pointers, columns = (np.asarray(each).astype(np.int64) for each in (pointers, columns))
    ends = (int(pointers[0]), int(pointers[-1])) if len(pointers) == extents[0] + 1 else ()
    inside = not len(columns) or (columns.min() >= 0 and columns.max() < extents[1])
    if ends != (0, len(columns)) or (np.diff(pointers) < 0).any() or not inside:
        raise WorkloadError(
            f"the pattern's pointers or columns are not those of {extents[0]} rows and "
            f"{extents[1]} columns",
            parameter="pattern",
        )
    if not len(columns):
        raise WorkloadError("the pattern has no places; there is no work", parameter="pattern")
    return Pattern(
        shape=(extents[0], extents[1]),
        pointers=pointers,
        columns=columns,
        index=index,
        dtype=dtype,
    )


def pattern_params(op: str, pattern: Pattern) -> dict[str, Value]:
    """The parameters of an operator on such a matrix that the pattern says.

    Raises `WorkloadError` for an operator that is not on a sparse matrix.
    """
    takes = operator(op)
    if takes.places != ("M", "N"):
        raise WorkloadError(f"{op} takes no pattern; spmv, spmm and sddmm do", parameter="pattern")
    rows, columns = pattern.shape
    said: Mapping[str, Value] = {
        "M": rows,
        "N": columns,
        "density": pattern.places / (rows * columns),
        "lengths": nearest_lengths(pattern),
        "spread": nearest_spread(pattern),
        "index": pattern.index,
        "dtype": pattern.dtype,
    }
    return {param.name: said[param.name] for param in takes.params if param.name in said}


def nearest_lengths(pattern: Pattern) -> Lengths:
    """The distribution whose sorted row lengths differ least from those of the pattern."""
    lengths = np.sort(np.diff(pattern.pointers.astype(np.int64)))
    tensor = Tensor(name="P", shape=(len(lengths) + 1,), dtype="int64")

    def distance(name: Lengths) -> float:
        fact = Splits(stop=pattern.places, lengths=name)
        like = drawn(np.random.default_rng(0), replace(tensor, fact=fact))
        return float(np.abs(np.sort(np.diff(like)) - lengths).sum())

    return min(get_args(Lengths), key=distance)


def nearest_spread(pattern: Pattern) -> Spread:
    """The distribution whose columns are as far from the diagonal, as often neighbours and as
    often the same as those of the pattern.

    That columns are in order in each row tells none from the others.
    """
    count = pattern.shape[1]
    tensor = Tensor(name="J", shape=(pattern.places,), dtype="int64")
    own = _looks(pattern.columns, count)

    def distance(name: Spread) -> float:
        fact = Within(start=0, stop=count, spread=name)
        like = drawn(np.random.default_rng(0), replace(tensor, fact=fact))
        return float(np.abs(_looks(like, count) - own).sum())

    unordered: list[Spread] = [name for name in get_args(Spread) if name != "sorted"]
    return min(unordered, key=distance)


def _looks(columns: NDArray[Any], count: int) -> NDArray[np.float64]:
    """Distance from the diagonal, neighbours in turn, the share of the most frequent; each of
    them from 0 to about 1."""
    diagonal = (np.arange(len(columns)) + 0.5) / len(columns)
    often = np.sort(np.bincount(columns, minlength=count))[::-1]
    return np.array(
        [
            3 * np.abs(columns / count - diagonal).mean(),
            (np.diff(columns) == 1).mean() if len(columns) > 1 else 0.0,
            often[: max(1, round(_FREQUENT * count))].sum() / len(columns),
        ]
    )
