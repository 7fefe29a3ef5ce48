"""How a read moves through memory is told from its indices."""

from __future__ import annotations

import pytest

from tuner.spaces.rewrite.access import accesses
from tuner.workload.spec import workload_from_notation

# Of a tensor of 4 x 5 x 3 x 6 elements the indices, and elements moved by a step of i,
# of j and of k; None where not constant.
READS: list[tuple[str, tuple[int, int, int] | None]] = [
    ("i, j, 0, k", (90, 18, 1)),
    ("i, j // 3, j % 3, k", (90, 6, 1)),
    ("0, (2*j + k + 1) // 3, (2*j + k + 1) % 3, i", (1, 12, 6)),
    ("i, j // 2, j % 2, k", None),  # the remainder does not fill its dimension
    ("i, j // 3, (j + 1) % 3, k", None),
    ("i, j % 3, j // 3, k", None),
    ("i // 5, i % 5, j % 3, k", None),
    ("(i*5 + j) // 5, (i*5 + j) % 5, 0, k", (90, 18, 1)),
]


@pytest.mark.parametrize(("indices", "steps"), READS)
def test_a_quotient_and_its_remainder_walk_two_dimensions_as_one(
    indices: str, steps: tuple[int, int, int] | None
) -> None:
    text = (
        f"kernel at(X: f32[4, 5, 3, 6]) -> (Y: f32[3, 4, 5]) {{ Y[i, j, k] = X[{indices}] "
        f"for i in 0:3, j in 0:4, k in 0:5 }}"
    )
    (stage,) = workload_from_notation(text, {}).expression.stages
    (access,) = accesses(stage, {"X": (4, 5, 3, 6)})
    if steps is None:
        assert access.strides is None
    else:
        assert tuple(access.stride(axis) for axis in "ijk") == steps
