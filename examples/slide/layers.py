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
from examples.slide.hashing import call
from tuner.runtime.loader import aligned_empty

Array = NDArray[Any]
# (source, extents of a notation's symbols) to a function of arrays
MakeKernel = Callable[[str, dict[str, int] | None], Callable[..., Any]]

DTYPES = ("float32", "uint16")  # of a matrix, and of its bits in bfloat16
ROWS_OF_A_CALL = 2048  # that a step changes: what is between both halves stays in the cache
ROWS_STEP = """
kernel rows_step(P: i32[A + 1] splits E, R: i32[E] in 0:B, N: i32[A] in 0:C sorted, G: f32[E],
    X: f32[B, D], rate: f32[1], W: f32[C, D]) -> (Y: f32[A, D]) {
  S[a, d] += G[e] * X[R[e], d] for e in P[a]:P[a + 1]
  Y[a, d] = W[N[a], d] - rate[0] * S[a, d]
}"""
# The nearest bfloat16 of the rows, too.
NARROW_ROWS_STEP = ROWS_STEP.replace("Y: f32[A, D]", "Y: f32[A, D], Z: bf16[A, D]").replace(
    "\n}", "\n  Z[a, d] = bf16(Y[a, d])\n}"
)


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
        """`narrow` is of a matrix that is kept in bfloat16 as well."""
        places = sizes.batch * per_sample
        self._block = min(rows, places, ROWS_OF_A_CALL)
        self._rate = np.array([sizes.rate], np.float32)
        shape = (self._block, sizes.depth)
        self._changed = [aligned_empty(shape, dtype) for dtype in DTYPES[: 1 + narrow]]
        extents = {"A": self._block, "B": sizes.batch, "C": rows, "D": sizes.depth, "E": places}
        self._kernel = kernel(NARROW_ROWS_STEP if narrow else ROWS_STEP, extents)
        self._pointers = aligned_empty((self._block + 1,), "int32")
        self._rows = aligned_empty((self._block,), "int32")
        self._samples = aligned_empty((places,), "int32")
        self._terms = aligned_empty((places,), "float32")
        self._samples[:], self._terms[:] = 0, 0  # of which a call reads the first ones
        # What `named_rows` gives, and its scratch.
        rows_named, pointers = np.empty(places, np.int32), np.empty(places + 1, np.int32)
        self._named_by = (
            rows_named, pointers, np.empty(places, np.int32), np.empty(places, np.float32),
        )  # fmt: skip
        self._ends = np.zeros(rows, np.int32)

    def change(self, matrix: tuple[Array, ...], names: Array, weights: Array, x: Array) -> None:
        """From each row goes the rate times the sum of the vectors that name it, weighted.

        `matrix` is in float32, and perhaps in bfloat16, which follows it. `names` and `weights`
        are (samples, names), `x` is (samples, depth).
        """
        count = call(
            "named_rows", *self._named_by, np.ascontiguousarray(names),
            np.ascontiguousarray(weights), self._ends, names.size, names.shape[1], len(self._ends),
        )  # fmt: skip
        rows, pointers, samples, terms = self._named_by
        for low in range(0, count, self._block):
            part = rows[low : min(low + self._block, count)]
            bounds = pointers[low : low + len(part) + 1]
            self._fill(part, bounds, samples, terms)
            self._kernel(
                self._pointers, self._samples, self._rows, self._terms, x, self._rate, matrix[0],
                out=self._changed,
            )  # fmt: skip
            for whole, changed in zip(matrix, self._changed, strict=True):
                whole[part] = changed[: len(part)]

    def _fill(self, rows: Array, pointers: Array, samples: Array, terms: Array) -> None:
        """The inputs of a call: rows, and the terms that name them; then rows without any."""
        count, first, last = len(rows), pointers[0], pointers[-1]
        self._pointers[: count + 1] = pointers - first
        self._pointers[count + 1 :] = last - first
        self._rows[:count], self._rows[count:] = rows, rows[-1]
        self._samples[: last - first] = samples[first:last]
        self._terms[: last - first] = terms[first:last]


def rounded(numbers: Array) -> Array:
    """The bits of the nearest bfloat16 to each float32."""
    bits = numbers.view(np.int32)
    made = aligned_empty(numbers.shape, "uint16")
    made[...] = (bits - bits.astype(np.int16)) >> 16
    return made
