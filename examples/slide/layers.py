"""What all networks share: their sizes, the hidden layer, and steps on rows that are named.

Hidden vectors are sums of the rows of a table that the sample's features name, cut at 0.
Steps are those of gradient descent, which leaves rows alone that no sample names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from examples.slide.data import Samples
from examples.slide.hashing import call, library
from tuner.runtime.loader import aligned_empty
from tuner.workload.arrays import numpy_dtype

Array = NDArray[Any]
# (source, extents of a notation's symbols) to a function of arrays
MakeKernel = Callable[[str, dict[str, int] | None], Callable[..., Any]]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The classifier, and how it is trained."""

    features: int
    classes: int
    batch: int
    depth: int  # of hidden vectors
    active: int  # classes of a sample that SLIDE computes
    drawn: int  # of them those that are drawn for a group of samples
    groups: int  # of a batch
    tables: int
    bits: int  # of a code
    room: int  # classes of a bucket
    rate: float  # of steps
    refill: int  # steps from which on tables are filled again, each time later

    @property
    def codes(self) -> int:
        return 1 << self.bits


class Output(Protocol):
    """An output layer that is trained step by step."""

    name: str

    def step(self, hidden: Array, labels: Array) -> Array:
        """Changes the layer, and gives the gradient of the hidden vectors."""
        ...

    def weights(self) -> tuple[Array, Array]:
        """Weights, (classes, depth), and bias, in float32."""
        ...


def initial(sizes: Sizes, seed: int) -> tuple[Array, Array, Array]:
    """The same table, weights and bias for every network."""
    rng = np.random.default_rng(seed)

    def drawn(rows: int, scale: float) -> Array:
        made = aligned_empty((rows, sizes.depth), "float32")
        made[...] = rng.standard_normal(made.shape, np.float32) * np.float32(scale)
        return made

    bias = aligned_empty((sizes.classes,), "float32")
    bias[...] = 0
    return drawn(sizes.features, 0.1), drawn(sizes.classes, 0.05), bias


class Network:
    """A hidden layer of sparse features below an output layer."""

    def __init__(
        self, sizes: Sizes, output: Output, kernel: MakeKernel, per_sample: int, seed: int
    ) -> None:
        """`per_sample` features name the rows of a sample."""
        library()  # compiled now, not within the first step
        self._output, self._table = output, initial(sizes, seed)[0]
        self._rate = sizes.rate
        depth, batch = sizes.depth, sizes.batch
        self._forward = kernel(
            f"embedding_bag:V={sizes.features},D={depth},B={batch},L={per_sample},lengths=equal",
            None,
        )
        self._pointers = np.arange(batch + 1, dtype=np.int32) * per_sample
        self._ones = np.ones((batch, per_sample), np.float32)

    @property
    def name(self) -> str:
        return self._output.name

    def step(self, batch: Samples) -> None:
        hidden = self._forward(self._pointers, batch.features.ravel(), self._table)
        np.maximum(hidden, 0, out=hidden)
        gradient = self._output.step(hidden, batch.labels) * (hidden > 0)
        change_rows(self._table, batch.features, self._ones, gradient, self._rate)

    def weights(self) -> tuple[Array, Array, Array]:
        """The table of features, and weights and bias of the output layer."""
        return self._table, *self._output.weights()


def change_rows(
    matrix: Array,
    names: Array,
    weights: Array,
    x: Array,
    rate: float,
    bias: Array | None = None,
    turn: int = 0,
) -> None:
    """From the rows that samples name goes the rate times their vectors, weighted, in place.

    `matrix` is (rows, depth), of float32 or the bits of bfloat16. `names` and `weights` are
    (samples, names), `x` is (samples, depth). From `bias`, (rows,), goes as much without the
    vectors. Names must be in range: they are those that a kernel has checked.

    A result in bfloat16 is rounded up or down by chance, so that it is right in expectation
    and steps below the resolution are not lost (Gupta et al. 2015). `turn` is the number of
    names before this call; where it is the same, so are the results.
    """
    given = (None, matrix) if matrix.dtype == np.uint16 else (matrix, None)
    call(
        "change_rows", *given, bias,
        np.ascontiguousarray(names, np.int32), np.ascontiguousarray(weights, np.float32),
        np.ascontiguousarray(x, np.float32), float(rate), turn, *names.shape, x.shape[1],
    )  # fmt: skip


def narrowed(numbers: Array) -> Array:
    """The bits of the nearest bfloat16 to each float32."""
    bits = aligned_empty(numbers.shape, "bfloat16")
    bits[...] = numbers.astype(numpy_dtype("bfloat16")).view(np.uint16)
    return bits


def widened(bits: Array) -> Array:
    """The float32 of the bits of bfloat16."""
    return bits.view(numpy_dtype("bfloat16")).astype(np.float32)
