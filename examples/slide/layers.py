"""The two layers of the classifier, and an update of each: our kernels, or PyTorch's.

Hidden vectors are sums of the rows of a table that the sample's features name, cut at 0.
The output layer is a softmax over classes: over all of them, or over those that hash tables
choose for the sample. Steps are those of gradient descent, which leaves rows alone that no
sample has active.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from examples.slide.data import Samples
from examples.slide.hashing import HashTables
from tuner.runtime.loader import aligned_empty

Array = NDArray[Any]
# (source, extents of a notation's symbols) to a function of arrays
MakeKernel = Callable[[str, dict[str, int] | None], Callable[..., Any]]

GROWTH = 1.1  # of the steps between two fillings of the hash tables
DENSE_SOFTMAX = """
kernel dense_softmax(X: f32[B, D], W: f32[C, D], bias: f32[C]) -> (Y: f32[B, C]) {
  Z[b, c] += X[b, d] * W[c, d]
  U[b, c] = Z[b, c] + bias[c]
  M[b] max= U[b, c]
  E[b, c] = exp(U[b, c] - M[b])
  S[b] += E[b, c]
  Y[b, c] = E[b, c] / S[b]
}"""
DENSE_STEP = """
kernel dense_step(G: f32[B, C], X: f32[B, D], W: f32[C, D], rate: f32[1]) -> (Y: f32[C, D]) {
  S[c, d] += G[b, c] * X[b, d]
  Y[c, d] = W[c, d] - rate[0] * S[c, d]
}"""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The classifier, and how it is trained."""

    features: int
    classes: int
    batch: int
    depth: int  # of hidden vectors
    active: int  # classes of a sample that SLIDE computes
    tables: int
    bits: int  # of a code
    rate: float  # of steps
    refill: int  # steps from which on tables are filled again, each time later

    @property
    def codes(self) -> int:
        return 1 << self.bits


class Network(Protocol):
    """A classifier that is trained step by step."""

    name: str

    def step(self, batch: Samples) -> None: ...

    def weights(self) -> tuple[Array, Array, Array]:
        """The table of features, and weights and bias of the output layer."""
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


def by_row(numbers: Array) -> tuple[Array, Array, Array]:
    """Where each row is named in (samples, names): the rows, pointers to their places in
    order, and the order."""
    flat = numbers.ravel()
    order = np.argsort(flat, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(flat[order]) != 0])
    return flat[order[starts]], np.r_[starts, len(flat)], order


class Bags:
    """The layer of features, and steps on rows that are named."""

    def __init__(self, sizes: Sizes, table: Array, kernel: MakeKernel, per_sample: int) -> None:
        self._sizes, self.table, self._per_sample = sizes, table, per_sample
        batch, depth = sizes.batch, sizes.depth
        self._forward = kernel(
            f"embedding_bag:V={sizes.features},D={depth},B={batch},L={per_sample},lengths=equal",
            None,
        )
        self._rows = Rows(sizes, sizes.features, per_sample, kernel)
        self._pointers = np.arange(batch + 1, dtype=np.int32) * per_sample

    def forward(self, batch: Samples) -> Array:
        hidden = self._forward(self._pointers, batch.features.ravel(), self.table)
        made: Array = np.maximum(hidden, 0, out=hidden)
        return made

    def step(self, batch: Samples, hidden: Array, gradient: Array) -> None:
        """From the gradient of the hidden vectors."""
        gradient = gradient * (hidden > 0)
        ones = np.ones(batch.features.shape, np.float32)
        rows, change = self._rows.gradient(batch.features, ones, gradient)
        self.table[rows] -= np.float32(self._sizes.rate) * change


class Rows:
    """Gradients of those rows of a matrix that samples name."""

    def __init__(self, sizes: Sizes, rows: int, per_sample: int, kernel: MakeKernel) -> None:
        self._named = per_sample
        self._most = min(rows, sizes.batch * per_sample)
        self._kernel = kernel(
            f"slide_layer_gradient:B={sizes.batch},D={sizes.depth},C={rows},L={per_sample},"
            f"A={self._most},of=weights",
            None,
        )

    def gradient(self, names: Array, weights: Array, x: Array) -> tuple[Array, Array]:
        """The rows that are named, and of each the sum of weights times vectors."""
        rows, pointers, order = by_row(names)
        every = np.full(self._most + 1, pointers[-1], np.int32)
        every[: len(pointers)] = pointers
        samples = (order // self._named).astype(np.int32)
        return rows, self._kernel(every, samples, weights.ravel()[order], x)[: len(rows)]


class Slide:
    """The output layer over chosen classes."""

    def __init__(
        self, sizes: Sizes, per_sample: int, kernel: MakeKernel, seed: int, *, narrow: bool = False
    ) -> None:
        """`narrow` keeps a copy of the weights in bfloat16, which the layer reads."""
        self.name = "SLIDE, bfloat16" if narrow else "SLIDE"
        self._sizes, self._narrow = sizes, narrow
        table, self._weights, self._bias = initial(sizes, seed)
        self._bags = Bags(sizes, table, kernel, per_sample)
        shape = f"B={sizes.batch},D={sizes.depth},C={sizes.classes},L={sizes.active}"
        dtype = "bfloat16" if narrow else "float32"
        self._forward = kernel(f"slide_layer:{shape},softmax=true,dtype={dtype}", None)
        self._back = kernel(f"slide_layer_gradient:{shape},dtype={dtype}", None)
        self._rows = Rows(sizes, sizes.classes, sizes.active, kernel)
        of_code = f"D={sizes.depth},T={sizes.tables},K={sizes.bits}"
        self._hash = kernel(f"simhash:B={sizes.batch},{of_code}", None)
        self._tables = HashTables(
            classes=sizes.classes, codes=sizes.codes, active=sizes.active, seed=seed
        )
        rng = np.random.default_rng(seed)
        self._directions = rng.choice([-1.0, 1.0], (sizes.depth, sizes.tables * sizes.bits))
        self._directions = self._directions.astype(np.float32)
        self._read = to_bfloat16(self._weights) if narrow else self._weights
        self._steps, self._refill_at, self._pause = 0, 0, float(sizes.refill)

    def step(self, batch: Samples) -> None:
        if self._steps >= self._refill_at:
            self._refill()
        self._steps += 1
        hidden = self._bags.forward(batch)
        active = self._tables.active(batch.labels, self._hash(hidden, self._directions))
        gradient = self._forward(active, hidden, self._read, self._bias)
        gradient -= is_label(active, batch.labels)
        gradient /= np.float32(len(batch))
        back = self._back(active, gradient, self._read)
        rows, change = self._rows.gradient(active, gradient, hidden)
        rate = np.float32(self._sizes.rate)
        self._weights[rows] -= rate * change
        if self._narrow:
            self._read[rows] = to_bfloat16(self._weights[rows])
        np.subtract.at(self._bias, active.ravel(), rate * gradient.ravel())
        self._bags.step(batch, hidden, back)

    def _refill(self) -> None:
        """Fills the hash tables; the longer the training, the more seldom."""
        size = self._sizes.batch
        codes = np.empty((self._sizes.classes, self._sizes.tables), np.int32)
        block = aligned_empty((size, self._sizes.depth), "float32")
        for start in range(0, len(codes), size):
            part = self._weights[start : start + size]
            block[: len(part)] = part
            codes[start : start + size] = self._hash(block, self._directions)[: len(part)]
        self._tables.fill(codes)
        self._refill_at, self._pause = self._steps + int(self._pause), self._pause * GROWTH

    def weights(self) -> tuple[Array, Array, Array]:
        return self._bags.table, self._weights, self._bias


class Dense:
    """The output layer over all classes, by our kernels."""

    name = "dense"

    def __init__(self, sizes: Sizes, per_sample: int, kernel: MakeKernel, seed: int) -> None:
        self._rate = np.array([sizes.rate], np.float32)
        table, self._weights, self._bias = initial(sizes, seed)
        self._next = aligned_empty(self._weights.shape, "float32")
        self._bags = Bags(sizes, table, kernel, per_sample)
        extents = {"B": sizes.batch, "C": sizes.classes, "D": sizes.depth}
        self._forward = kernel(DENSE_SOFTMAX, extents)
        self._back = kernel(f"matmul:M={sizes.batch},N={sizes.depth},K={sizes.classes}", None)
        self._step = kernel(DENSE_STEP, extents)

    def step(self, batch: Samples) -> None:
        hidden = self._bags.forward(batch)
        gradient = self._forward(hidden, self._weights, self._bias)
        share = np.float32(1 / batch.labels.shape[1])
        np.subtract.at(gradient, (np.arange(len(batch))[:, None], batch.labels), share)
        gradient /= np.float32(len(batch))
        back = self._back(gradient, self._weights)
        self._step(gradient, hidden, self._weights, self._rate, out=self._next)
        self._weights, self._next = self._next, self._weights
        self._bias -= self._rate * gradient.sum(0)
        self._bags.step(batch, hidden, back)

    def weights(self) -> tuple[Array, Array, Array]:
        return self._bags.table, self._weights, self._bias


class Torch:
    """The same network in PyTorch."""

    name = "PyTorch"

    def __init__(self, sizes: Sizes, seed: int, threads: int) -> None:
        import torch  # noqa: PLC0415  # for those who compare with it

        torch.set_num_threads(threads)
        table, weights, bias = (torch.tensor(each) for each in initial(sizes, seed))
        self._torch = torch
        self._bag = torch.nn.EmbeddingBag.from_pretrained(table, freeze=False, mode="sum")
        self._out = torch.nn.Linear(sizes.depth, sizes.classes)
        self._out.weight.data, self._out.bias.data = weights, bias
        parameters = [*self._bag.parameters(), *self._out.parameters()]
        self._optimizer = torch.optim.SGD(parameters, lr=sizes.rate)

    def step(self, batch: Samples) -> None:
        torch = self._torch
        hidden = torch.relu(self._bag(torch.from_numpy(batch.features)))
        logs = torch.log_softmax(self._out(hidden), 1)
        loss = -logs.gather(1, torch.from_numpy(batch.labels).long()).mean()
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()

    def weights(self) -> tuple[Array, Array, Array]:
        parameters = (self._bag.weight, self._out.weight, self._out.bias)
        table, weights, bias = (each.detach().numpy() for each in parameters)
        return table, weights, bias


def is_label(active: Array, labels: Array) -> Array:
    """What the softmax over active classes should be: equal shares of a sample's labels."""
    matches: Array = (active[:, :, None] == labels[:, None, :]).mean(2, dtype=np.float32)
    return matches


def to_bfloat16(numbers: Array) -> Array:
    """The bits of the nearest bfloat16 to each float32, in an aligned array."""
    bits = numbers.view(np.uint32)
    made = aligned_empty(numbers.shape, "bfloat16")
    made[...] = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return made
