"""SciPy's routes to the catalogue's sparse operators: products with a matrix in CSR.

Matrices are made before any call, without copies of their arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tuner.measure.rivals.route import Route

Array = np.ndarray[Any, np.dtype[Any]]
Params = Mapping[str, Any]
_DTYPES = ("float32", "float64")  # that SciPy's products have


def routes(
    op: str, params: Params, inputs: Mapping[str, Array], shape: tuple[int, ...], threads: int
) -> list[Route]:
    """SciPy's route to the operator, on one thread; none for operators that it lacks."""
    if params.get("dtype") not in _DTYPES:
        return []
    match op:
        case "spmv" | "spmm":
            matrix, dense = _matrix(inputs["P"], inputs["J"], inputs["A"], inputs["X"]), inputs["X"]
        case "embedding_bag":
            dense = inputs["W"]
            matrix = _matrix(inputs["P"], inputs["J"], _weights(params, inputs, dense), dense)
        case "segment_reduce" if params["mode"] in ("sum", "mean"):
            dense = inputs["X"]
            places = np.arange(len(dense), dtype=inputs["P"].dtype)
            matrix = _matrix(inputs["P"], places, _weights(params, inputs, dense), dense)
        case _:
            return []
    last: list[Array] = []

    def call() -> None:
        last[:] = [matrix @ dense]

    return [Route(name="csr", call=call, result=lambda: last[0])]


def _matrix(pointers: Array, columns: Array, values: Array, dense: Array) -> Any:
    from scipy.sparse import csr_array  # noqa: PLC0415  # optional, of the extra "compare"

    shape = (len(pointers) - 1, len(dense))
    return csr_array((values, columns, pointers), shape=shape, copy=False)


def _weights(params: Params, inputs: Mapping[str, Array], dense: Array) -> Array:
    """The factor of each place of a bag or segment."""
    if params["mode"] == "weighted":
        return inputs["A"]
    lengths = np.diff(inputs["P"])
    factors = 1 / np.maximum(lengths, 1) if params["mode"] == "mean" else np.ones(len(lengths))
    return np.repeat(factors, lengths).astype(dense.dtype)
