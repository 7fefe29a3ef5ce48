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
from examples.slide.hashing import stable_order
from tuner.runtime.loader import aligned_empty

Array = NDArray[Any]
# (source, extents of a notation's symbols) to a function of arrays
MakeKernel = Callable[[str, dict[str, int] | None], Callable[..., Any]]

ROWS_OF_A_CALL = 2048  # that a step changes: what is between both halves stays in the cache
ROWS_STEP = """
kernel rows_step(P: i32[A + 1] splits E, R: i32[E] in 0:B, N: i32[A] in 0:C sorted, G: f32[E],
    X: f32[B, D], rate: f32[1], W: f32[C, D]) -> (Y: f32[A, D]) {
  S[a, d] += G[e] * X[R[e], d] for e in P[a]:P[a + 1]
  Y[a, d] = W[N[a], d] - rate[0] * S[a, d]
}"""


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
        self._output, self._table = output, initial(sizes, seed)[0]
        depth, batch = sizes.depth, sizes.batch
        self._forward = kernel(
            f"embedding_bag:V={sizes.features},D={depth},B={batch},L={per_sample},lengths=equal",
            None,
        )
        self._rows = RowsStep(sizes, sizes.features, per_sample, kernel)
        self._pointers = np.arange(batch + 1, dtype=np.int32) * per_sample
        self._ones = np.ones((batch, per_sample), np.float32)

    @property
    def name(self) -> str:
        return self._output.name

    def step(self, batch: Samples) -> None:
        hidden = self._forward(self._pointers, batch.features.ravel(), self._table)
        np.maximum(hidden, 0, out=hidden)
        gradient = self._output.step(hidden, batch.labels) * (hidden > 0)
        self._rows.change((self._table,), batch.features, self._ones, gradient)

    def weights(self) -> tuple[Array, Array, Array]:
        """The table of features, and weights and bias of the output layer."""
        return self._table, *self._output.weights()


class RowsStep:
    """Steps on those rows of a matrix that samples name."""

    def __init__(
        self,
        sizes: Sizes,
        rows: int,
        per_sample: int,
        kernel: MakeKernel,
        *,
        narrow: bool = False,
    ) -> None:
        """`narrow` is of a matrix in two parts, as `split` gives them."""
        places = sizes.batch * per_sample
        self._named, self._block = per_sample, min(rows, places, ROWS_OF_A_CALL)
        self._rate = np.array([sizes.rate], np.float32)
        self._kernel = kernel(*self._source(sizes, rows, per_sample, narrow))
        self._changed = aligned_empty((self._block, sizes.depth), "float32")
        # A call reads so many terms from where its rows begin.
        self._samples = np.zeros(2 * places, np.int32)
        self._terms = np.zeros(2 * places, np.float32)

    def _source(
        self, sizes: Sizes, rows: int, per_sample: int, narrow: bool
    ) -> tuple[str, dict[str, int] | None]:
        """Of a matrix in two parts the kernel only sums: its low bits cannot be verified."""
        batch, depth = sizes.batch, sizes.depth
        if narrow:
            shape = f"B={batch},D={depth},C={rows},L={per_sample},A={self._block}"
            return f"slide_layer_gradient:{shape},of=weights", None
        places = batch * per_sample
        return ROWS_STEP, {"A": self._block, "B": batch, "C": rows, "D": depth, "E": places}

    def change(self, matrix: tuple[Array, ...], names: Array, weights: Array, x: Array) -> None:
        """From each row goes the rate times the sum of the vectors that name it, weighted.

        `names` and `weights` are (samples, names), `x` is (samples, depth).
        """
        order = stable_order(names.ravel())
        in_order = names.ravel()[order]
        starts = np.flatnonzero(np.diff(in_order, prepend=-1))
        rows, pointers = in_order[starts], np.append(starts, len(order)).astype(np.int32)
        self._samples[: len(order)] = order // self._named
        self._terms[: len(order)] = weights.ravel()[order]
        for low in range(0, len(rows), self._block):
            part = rows[low : low + self._block]
            self._call(matrix, part, pointers[low : low + len(part) + 1], len(order), x)

    def _call(
        self, matrix: tuple[Array, ...], rows: Array, pointers: Array, places: int, x: Array
    ) -> None:
        first, count = pointers[0], len(rows)
        every = np.full(self._block + 1, pointers[-1] - first, np.int32)
        every[: count + 1] = pointers - first
        names = np.full(self._block, rows[-1], np.int32)
        names[:count] = rows
        samples, terms = (each[first : first + places] for each in (self._samples, self._terms))
        if len(matrix) == 1:
            (whole,) = matrix
            self._kernel(every, samples, names, terms, x, self._rate, whole, out=self._changed)
            whole[rows] = self._changed[:count]
            return
        self._kernel(every, samples, terms, x, out=self._changed)
        high, low = matrix
        numbers = joined(high[rows], low[rows]) - self._rate * self._changed[:count]
        high[rows], low[rows] = split(numbers)


def split(numbers: Array) -> tuple[Array, Array]:
    """The bits of the nearest bfloat16 to each float32, and by how much its bits differ."""
    bits = numbers.view(np.int32)
    high, low = (aligned_empty(numbers.shape, dtype) for dtype in ("uint16", "int16"))
    low[...] = bits.astype(np.int16)
    high[...] = ((bits - low) >> 16).astype(np.uint16)
    return high, low


def joined(high: Array, low: Array) -> Array:
    """The float32 that `split` made two parts of."""
    bits: Array = (high.astype(np.int32) << 16) + low
    return bits.view(np.float32)
