"""Tests of many like cases, of which a few are quick tests and the others slow ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def thinned(cases: Iterable[Any], quick: int, slow: pytest.MarkDecorator) -> list[Any]:
    """The values of one parameter; all but the first `quick` have the mark.

    A file gives `pytest.mark.slow` itself: its text has to say that it has slow tests.
    """
    first = list(cases)
    return [*first[:quick], *(pytest.param(case, marks=slow) for case in first[quick:])]
