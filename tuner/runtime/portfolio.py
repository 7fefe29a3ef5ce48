"""Kernels for fixed numbers of rows behind one function for any number of rows in a
range: plain data and its C tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from tuner.workload.rows import Rows

Kernel = TypeVar("Kernel")
Other = TypeVar("Other")


@dataclass(frozen=True, kw_only=True)
class Portfolio(Generic[Kernel]):
    """The kernels take the function's arguments, with so many rows as `extents` says
    where the function has a range."""

    rows: Rows
    extents: tuple[int, ...]  # rows of each kernel
    kernels: tuple[Kernel, ...]
    plan: tuple[
        int, ...
    ]  # for each number of rows left, from 0 to the greatest, the kernel that comes next


def replace_kernels(portfolio: Portfolio[Kernel], kernels: tuple[Other, ...]) -> Portfolio[Other]:
    """The same portfolio of other descriptions of its kernels."""
    return Portfolio(
        rows=portfolio.rows, extents=portfolio.extents, kernels=kernels, plan=portfolio.plan
    )
