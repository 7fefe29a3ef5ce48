"""The order in which the blocks of a product are numbered."""

from __future__ import annotations

from enum import Enum


class BlockOrder(Enum):
    """The value is the text that configs hold."""

    ROWS_FIRST = "rows first"  # columns run fastest
    COLUMNS_FIRST = "columns first"
