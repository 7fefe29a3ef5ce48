"""The ranges in which PyTorch wants the indices of an operator, so that calls can look for them.

Kernels take an index out of its range for the nearest one. PyTorch raises an error, by these
rules: https://docs.pytorch.org/docs/stable/torch.html#indexing-slicing-joining-mutating-ops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.models.from_torch.call import Call
from tuner.models.operators.values import Value
from tuner.workload.expression import Within

Ranges = Callable[[Call], Iterator[tuple[Value, Within]]]
"""The index tensors of a call, each with the range of its elements."""


@dataclass(frozen=True, kw_only=True)
class _Along:
    """Indices along one dimension; none may be negative."""

    indices: str  # the argument that has them
    indexed: str = "self"
    dimension: int | None = None  # None: the call's `dim`

    def __call__(self, call: Call) -> Iterator[tuple[Value, Within]]:
        shape = call[self.indexed].shape or (1,)
        dimension = call["dim"] if self.dimension is None else self.dimension
        yield call.value(self.indices), Within(start=0, stop=shape[dimension])


def _of_each(call: Call) -> Iterator[tuple[Value, Within]]:
    """Indices of several dimensions, as NumPy has them: negative ones count from the end."""
    for tensor, extent in zip(call["indices"], call["self"].shape, strict=False):
        if tensor is not None and tensor.dtype != "bool":
            yield tensor, Within(start=-extent, stop=extent)


def _of_classes(call: Call) -> Iterator[tuple[Value, Within]]:
    """Targets of a loss, and the number that says that there is none. What lies between that
    number and the classes, where it is far from them, is not told apart."""
    shape, ignored = call["self"].shape, call["ignore_index"]
    classes = shape[1] if len(shape) > 1 else shape[0]
    yield call.value("target"), Within(start=min(0, ignored), stop=max(classes, ignored + 1))


_ROWS = _Along(indices="index")

RANGES: Mapping[str, Ranges] = {
    "aten._embedding_bag.default": _Along(indices="indices", indexed="weight", dimension=0),
    "aten._embedding_bag_forward_only.default": _Along(
        indices="indices", indexed="weight", dimension=0
    ),
    "aten.embedding.default": _Along(indices="indices", indexed="weight", dimension=0),
    "aten.gather.default": _ROWS,
    "aten.index.Tensor": _of_each,
    "aten.index_add.default": _ROWS,
    "aten.index_copy.default": _ROWS,
    "aten.index_put.default": _of_each,
    "aten.index_reduce.default": _ROWS,
    "aten.index_select.default": _ROWS,
    "aten.nll_loss2d_forward.default": _of_classes,
    "aten.nll_loss_forward.default": _of_classes,
    "aten.scatter.reduce": _ROWS,
    "aten.scatter.src": _ROWS,
    "aten.scatter.value": _ROWS,
    "aten.scatter.value_reduce": _ROWS,
    "aten.scatter_add.default": _ROWS,
    "aten.scatter_reduce.two": _ROWS,
}


def ranges_of(op: str, described: Callable[[], Call]) -> list[tuple[Any, Within]]:
    """The index tensors of a call of an operator; `described` gives the call."""
    return [*RANGES[op](described())] if op in RANGES else []
