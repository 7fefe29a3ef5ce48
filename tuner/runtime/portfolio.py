"""A portfolio: kernels for fixed numbers of rows behind one function for a range of them.

Plain data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from tuner.workload.rows import Rows

Kernel = TypeVar("Kernel")
Other = TypeVar("Other")


@dataclass(frozen=True, kw_only=True)
class Portfolio(Generic[Kernel]):
    """Kernels for fixed numbers of rows.

    They take the function's arguments, with as many rows as `extents` says where the
    function has a range.
    """

    rows: Rows
    extents: tuple[int, ...]  # rows of each kernel
    kernels: tuple[Kernel, ...]
    # For each number of rows left, from 0 to the greatest, the kernel that comes next.
    # Empty where extents are listed.
    plan: tuple[int, ...]


def replace_kernels(portfolio: Portfolio[Kernel], kernels: tuple[Other, ...]) -> Portfolio[Other]:
    """The same portfolio with other descriptions of its kernels."""
    return Portfolio(
        rows=portfolio.rows, extents=portfolio.extents, kernels=kernels, plan=portfolio.plan
    )
