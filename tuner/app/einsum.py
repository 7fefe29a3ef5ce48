"""`tuner.einsum`: products of arrays by kernels that read them as they lie in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, cast, get_args

import numpy as np

from tuner.app.kernels.kernel import Kernel
from tuner.app.races.race import kept_kernel
from tuner.app.tune import tune as tune_workload
from tuner.errors import UsageError
from tuner.settings import load_settings
from tuner.workload.einsum import (
    Contraction,
    Operand,
    Product,
    contraction_of,
    pairs,
    product_of,
    step_of,
    sublists,
)

Array = np.ndarray[Any, np.dtype[Any]]
Tune = Literal["now", "off"]
_TUNE: tuple[Tune, ...] = get_args(Tune)
_HOST = "cpu"
_MOST_KEPT = 1024  # products; what goes beyond is NumPy's


class Einsum:
    """Computes products, and keeps the kernels that it has looked up."""

    def __init__(self) -> None:
        self._functions: dict[tuple[Any, ...], Callable[..., Array]] = {}
        self._without: set[tuple[Any, ...]] = set()  # those of NumPy's that could be tuned

    def __call__(
        self,
        subscripts: str,
        *operands: Any,
        tune: Tune = "off",
        trials: int | None = None,
        seconds: float | None = None,
        threads: int | None = None,
        db: str | None = None,
    ) -> Array:
        """The product of arrays that `subscripts` say, as `numpy.einsum` has them.

        A product of two operands is one kernel, without permuted copies: operands without
        gaps in memory are read as they lie, and their strides are part of the workload.
        More operands are multiplied in pairs. The kernel is that of the database. Where it
        has none, `tune="now"` tunes one first, with the budget and threads given or those of
        the settings; `tune="off"` leaves the product to NumPy. So are left operands with
        gaps, of several dtypes, of others than float64, float32, float16 and bfloat16, and
        without elements. A process looks a kernel up once, and once more to tune it.

        Raises UsageError for subscripts that do not fit the operands, for options that do
        not exist, and what `tuner.tune` raises.
        """
        if tune not in _TUNE:
            raise UsageError(f"tune is {tune!r}; valid are {', '.join(_TUNE)}")
        options = (tune, (trials, seconds), (threads, db))
        arrays = [np.asarray(operand) for operand in operands]
        product = product_of(subscripts, [array.shape for array in arrays])
        left = list(zip(product.operands, arrays, strict=True))
        for places, labels in pairs(product):
            chosen = [left[place] for place in places]
            left = [pair for place, pair in enumerate(left) if place not in places]
            parts = [part for part, _ in chosen]
            left.append((labels, self._product(parts, labels, [a for _, a in chosen], options)))
        return left[0][1]

    def _product(
        self,
        parts: Sequence[tuple[str, ...]],
        output: tuple[str, ...],
        arrays: Sequence[Array],
        options: tuple[Tune, tuple[int | None, float | None], tuple[int | None, str | None]],
    ) -> Array:
        described = tuple(_operand(array) for array in arrays)
        tune, budget, place = options
        key = (tuple(parts), output, described, place)
        function = self._functions.get(key)
        if function is None or (tune == "now" and key in self._without):
            product = step_of(parts, output, [array.shape for array in arrays])
            if function is None and len(self._functions) >= _MOST_KEPT:
                return _by_numpy(product)(*arrays)
            contraction = contraction_of(product, described)
            kernel = None if contraction is None else _kernel(contraction, tune, *budget, *place)
            if contraction is None or kernel is None:
                function = _by_numpy(product)
            else:
                function = _by_kernel(contraction, kernel)
            self._functions[key] = function
            # Of those with a workload; the others have no kernel to tune either.
            if contraction is not None and kernel is None:
                self._without.add(key)
            else:
                self._without.discard(key)
        return function(*arrays)


def _operand(array: Array) -> Operand:
    size = max(array.itemsize, 1)
    strides = tuple(
        stride // size if stride % size == 0 else -1  # fields of records: none has a kernel
        for stride in array.strides
    )
    return Operand(array.shape, strides, array.dtype.name)


def _by_kernel(contraction: Contraction, kernel: Kernel) -> Callable[..., Array]:
    def function(*arrays: Array) -> Array:
        views = [
            _stored(array, axes) for array, axes in zip(arrays, contraction.stored, strict=True)
        ]
        result = cast(Array, kernel(*views))
        return result.reshape(contraction.shape).view(arrays[0].dtype)

    return function


def _kernel(
    contraction: Contraction,
    tune: Tune,
    trials: int | None,
    seconds: float | None,
    threads: int | None,
    db: str | None,
) -> Kernel | None:
    given = {"trials": trials, "seconds": seconds, "threads": threads, "target": _HOST, "db": db}
    settings = load_settings(given, given_as="argument {}").values
    kernel = kept_kernel(contraction.workload, settings)
    if kernel is None and tune == "now":
        kernel = tune_workload(
            contraction.workload,
            trials=trials, seconds=seconds, threads=threads, target=_HOST, db=db,
        )  # fmt: skip
    return cast(Kernel | None, kernel)


def _stored(array: Array, axes: Sequence[int]) -> Array:
    """The dimensions that are stored, in their order in memory: a dense view."""
    kept = sorted(axes)
    view = array[tuple(slice(None) if axis in kept else 0 for axis in range(array.ndim))]
    return view.transpose([kept.index(axis) for axis in axes])


def _by_numpy(product: Product) -> Callable[..., Array]:
    parts, output = sublists(product)

    def function(*arrays: Array) -> Array:
        given = [value for pair in zip(arrays, parts, strict=True) for value in pair]
        return np.asarray(np.einsum(*given, output, optimize=True))

    return function


einsum = Einsum()
