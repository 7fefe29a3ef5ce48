"""Operators of the catalogue in combinations of their choices over small odd shapes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from tuner.workload.operator import INTEGER_ACTIVATIONS, Operator

SIZES = {
    "A": 5,
    "B": 2,
    "M": 5,
    "N": 3,
    "K": 4,
    "H": 6,
    "W": 7,
    "D": 5,
    "CI": 4,
    "CO": 6,
    "KH": 3,
    "KW": 2,
    "KD": 2,
    "C": 3,
    "S": 4,
    "T": 3,
    "V": 7,
    "L": 2,
    "J": 8,
}
TRIED = {
    "density": (0.01, 0.5),
    "group": (0, 4, 16),
    "stride": (1, 2),
    "pad": (0, 1),
    "dilation": (1, 2),
    "groups": (1, 2),
    "HKV": (0, 3),
    "SK": (0, 9),
    "DV": (0, 3),
    "window": (0, 2),
    "softcap": (0, 20),
    "x_zero": (0, 9),
    "y_zero": (0, 3),
    "N": (0, 3),  # of what may leave it out
}


def combinations(operator: Operator) -> Iterator[dict[str, Any]]:
    """All choices of a small operator; of a large one every few, so that each value is
    met in many combinations."""
    options: list[tuple[Any, ...]] = []
    for param in operator.params:
        tried: tuple[Any, ...] = TRIED.get(param.name, ())
        if param.kind == "extent":
            tried = (SIZES[param.name],)
        elif param.kind in ("choice", "bool"):
            tried = param.choices or (False, True)
        options.append(tried or (param.default,))
    rows = list(product(*options))
    for row in rows[:: max(1, len(rows) // 60) | 1]:
        values = dict(zip((param.name for param in operator.params), row, strict=True))
        if not (
            values["dtype"].startswith("int")
            and values.get("act", "none") not in INTEGER_ACTIVATIONS
        ):
            yield values
