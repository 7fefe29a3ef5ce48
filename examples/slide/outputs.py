"""Output layers: a softmax over the classes that hash tables and draws choose, or over all.

Each gives the gradient of the hidden vectors and makes its own step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from examples.slide.hashing import Draws, HashTables, most_named, sign_codes
from examples.slide.layers import (
    Array,
    MakeKernel,
    Sizes,
    change_rows,
    initial,
    narrowed,
    widened,
)
from tuner.runtime.loader import aligned_empty

GROWTH = 1.1  # of the steps between two fillings of the hash tables
HASHED_AT_ONCE = 4096  # rows of weights
# A share of each sample in the mean of a batch.
DENSE_SOFTMAX = """
kernel dense_softmax(X: f32[B, D], W: f32[C, D], bias: f32[C]) -> (Y: f32[B, C]) {
  Z[b, c] += X[b, d] * W[c, d]
  U[b, c] = Z[b, c] + bias[c]
  M[b] max= U[b, c]
  E[b, c] = exp(U[b, c] - M[b])
  S[b] += E[b, c]
  Y[b, c] = E[b, c] / (B * S[b])
}"""
DENSE_STEP = """
kernel dense_step(G: f32[B, C], X: f32[B, D], W: f32[C, D], rate: f32[1]) -> (Y: f32[C, D]) {
  S[c, d] += G[b, c] * X[b, d]
  Y[c, d] = W[c, d] - rate[0] * S[c, d]
}"""


class Slide:
    """The softmax over chosen classes."""

    def __init__(
        self, sizes: Sizes, counts: Array, kernel: MakeKernel, seed: int, *, narrow: bool = False
    ) -> None:
        """`counts` says how often each class is a label. `narrow` weights are bfloat16."""
        self.name = "SLIDE, bfloat16" if narrow else "SLIDE"
        self._sizes, self._narrow = sizes, narrow
        _, weights, self._bias = initial(sizes, seed)
        self._weights = narrowed(weights) if narrow else weights
        shape = f"B={sizes.batch},D={sizes.depth},C={sizes.classes},L={sizes.active}"
        dtype = "bfloat16" if narrow else "float32"
        self._forward = kernel(f"slide_layer:{shape},softmax=true,offset=true,dtype={dtype}", None)
        self._back = kernel(f"slide_layer_gradient:{shape},dtype={dtype}", None)
        along = f"N={sizes.tables * sizes.bits},K={sizes.depth}"
        self._sums = kernel(f"matmul:M={sizes.batch},{along}", None)
        self._block = min(sizes.classes, HASHED_AT_ONCE)
        self._sums_of_rows = kernel(f"matmul:M={self._block},{along},dtype={dtype}", None)
        self._tables = HashTables(
            classes=sizes.classes, tables=sizes.tables, codes=sizes.codes, room=sizes.room,
            seed=seed,
        )  # fmt: skip
        self._draws = Draws(
            counts, samples=sizes.batch, count=sizes.drawn, groups=sizes.groups, seed=seed
        )
        self._times = np.zeros(sizes.classes, np.int32)
        self._directions = directions(sizes, seed)
        self._row_directions = narrowed(self._directions) if narrow else self._directions
        self._steps, self._refill_at, self._pause = 0, 0, float(sizes.refill)

    def step(self, hidden: Array, labels: Array) -> Array:
        if self._steps >= self._refill_at:
            self._refill()
        sizes = self._sizes
        codes = sign_codes(self._sums(hidden, self._directions), sizes.tables)
        alike = self._tables.alike(codes)
        own = most_named(labels, alike, sizes.active - sizes.drawn, self._times)
        active = self._draws.beside(own)
        gradient = self._forward(active.classes, hidden, self._weights, self._bias, active.offsets)
        gradient[:, : own.shape[1]] -= is_label(own, labels)
        gradient /= np.float32(len(hidden))
        back: Array = self._back(active.classes, gradient, self._weights)
        change_rows(
            self._weights, active.classes, gradient, hidden, sizes.rate, self._bias,
            turn=self._steps * gradient.size,
        )  # fmt: skip
        self._steps += 1
        return back

    def _refill(self) -> None:
        """Fills the hash tables; the longer the training, the more seldom."""
        rows = self._weights
        codes = np.empty((len(rows), self._sizes.tables), np.int32)
        for low in range(0, len(rows), self._block):
            part = slice(min(low, len(rows) - self._block), low + self._block)
            sums = self._sums_of_rows(rows[part], self._row_directions)
            codes[part] = sign_codes(sums, self._sizes.tables)
        self._tables.fill(codes)
        self._refill_at, self._pause = self._steps + int(self._pause), self._pause * GROWTH

    def weights(self) -> tuple[Array, Array]:
        return widened(self._weights) if self._narrow else self._weights, self._bias


class Dense:
    """The softmax over all classes, by our kernels."""

    name = "dense"

    def __init__(self, sizes: Sizes, kernel: MakeKernel, seed: int) -> None:
        self._rate = np.array([sizes.rate], np.float32)
        _, self._weights, self._bias = initial(sizes, seed)
        self._next = aligned_empty(self._weights.shape, "float32")
        extents = {"B": sizes.batch, "C": sizes.classes, "D": sizes.depth}
        self._forward = kernel(DENSE_SOFTMAX, extents)
        self._back = kernel(f"matmul:M={sizes.batch},N={sizes.depth},K={sizes.classes}", None)
        self._step = kernel(DENSE_STEP, extents)

    def step(self, hidden: Array, labels: Array) -> Array:
        gradient = self._forward(hidden, self._weights, self._bias)
        share = np.float32(1 / labels.size)
        np.subtract.at(gradient, (np.arange(len(labels))[:, None], labels), share)
        back: Array = self._back(gradient, self._weights)
        self._step(gradient, hidden, self._weights, self._rate, out=self._next)
        self._weights, self._next = self._next, self._weights
        self._bias -= self._rate * gradient.sum(0)
        return back

    def weights(self) -> tuple[Array, Array]:
        return self._weights, self._bias


class Torch:
    """The softmax over all classes, by PyTorch."""

    name = "PyTorch"

    def __init__(self, sizes: Sizes, seed: int, threads: int) -> None:
        import torch  # noqa: PLC0415  # for those who compare with it

        torch.set_num_threads(threads)
        _, weights, bias = initial(sizes, seed)
        self._torch: Any = torch
        self._out = torch.nn.Linear(sizes.depth, sizes.classes)
        self._out.weight.data, self._out.bias.data = map(torch.from_numpy, (weights, bias))
        self._optimizer = torch.optim.SGD(self._out.parameters(), lr=sizes.rate)

    def step(self, hidden: Array, labels: Array) -> Array:
        torch = self._torch
        x = torch.from_numpy(hidden).requires_grad_()
        logs = torch.log_softmax(self._out(x), 1)
        loss = -logs.gather(1, torch.from_numpy(labels).long()).mean()
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        back: Array = x.grad.numpy()
        return back

    def weights(self) -> tuple[Array, Array]:
        return self._out.weight.detach().numpy(), self._out.bias.detach().numpy()


def directions(sizes: Sizes, seed: int) -> Array:
    """Directions of hashing, (depth, tables * bits), each with as many 1 as -1.

    All hidden vectors are positive. What they have in common says nothing of their classes,
    and cancels.
    """
    signs = np.where(np.arange(sizes.depth) % 2, -1.0, 1.0).astype(np.float32)
    every = np.tile(signs[:, None], (1, sizes.tables * sizes.bits))
    made = aligned_empty(every.shape, "float32")
    made[...] = np.random.default_rng(seed).permuted(every, axis=0)
    return made


def is_label(own: Array, labels: Array) -> Array:
    """What the softmax over active classes should be: equal shares of a sample's labels."""
    share = np.float32(1 / labels.shape[1])
    matches: Array = sum((own == label[:, None]) * share for label in labels.T)
    return matches
