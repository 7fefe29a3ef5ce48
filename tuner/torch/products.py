"""Products of tensors by kernels that read them as they lie in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import torch

from tuner.models.graph import Graph
from tuner.torch.call import RegionCall
from tuner.torch.layouts import Layout, Layouts
from tuner.torch.notices import Notices
from tuner.torch.options import options_from
from tuner.torch.packed_graph import PackedGraph
from tuner.torch.rebuilding import Function
from tuner.torch.tuning import Background, RegionSupply
from tuner.workload.einsum import (
    Contraction,
    Labels,
    Operand,
    Product,
    contraction_of,
    pairs,
    product_of,
    step_of,
    sublists,
)

_ALIGNMENT = 64  # bytes
_MOST_KEPT = 1024  # products; what goes beyond is PyTorch's
_Function = Callable[..., torch.Tensor]


class Products:
    """Computes products, and keeps what computes each."""

    def __init__(self) -> None:
        self._background, self._notices, self._numbers = Background(), Notices(), count(1)
        self._functions: dict[tuple[Any, ...], _Function] = {}

    def product(
        self,
        subscripts: str,
        tensors: Sequence[torch.Tensor],
        mode: str | None,
        options: Mapping[str, Any] | None,
    ) -> torch.Tensor:
        """The product of plain tensors, in pairs. Raises UsageError."""
        given = (mode, repr(options), torch.get_num_threads())
        product = product_of(subscripts, [tensor.shape for tensor in tensors])
        left = list(zip(product.operands, tensors, strict=True))
        for places, labels in pairs(product):
            chosen = [left[place] for place in places]
            left = [pair for place, pair in enumerate(left) if place not in places]
            parts = tuple(part for part, _ in chosen)
            operands = tuple(_operand(tensor) for _, tensor in chosen)
            key = (parts, labels, operands, given)
            function = self._functions.get(key)
            if function is None:
                function = self._made(parts, labels, operands, mode, options)
                if len(self._functions) < _MOST_KEPT:
                    self._functions[key] = function
            left.append((labels, function(*(tensor for _, tensor in chosen))))
        return left[0][1]

    def _made(
        self,
        parts: Sequence[Labels],
        output: Labels,
        operands: Sequence[Operand],
        mode: str | None,
        options: Mapping[str, Any] | None,
    ) -> _Function:
        chosen = options_from(mode, options)
        product = step_of(parts, output, [operand.shape for operand in operands])
        full = len(self._functions) >= _MOST_KEPT
        contraction = None if full else contraction_of(product, operands)
        eager = _by_pytorch(product)
        if contraction is None:
            return lambda *tensors: eager(*tensors)[0]
        supply = RegionSupply(
            PackedGraph.of(_graph(contraction)),
            _layouts(contraction, operands),
            chosen,
            self._background,
        )
        call = RegionCall(f"einsum_{next(self._numbers)}", eager, supply, self._notices)
        spread = any(0 in operand.strides for operand in operands)

        def function(*tensors: torch.Tensor) -> torch.Tensor:
            # Repeated elements cannot be copied to where they would be aligned.
            if spread and any(tensor.data_ptr() % _ALIGNMENT for tensor in tensors):
                return eager(*tensors)[0]
            return call(*tensors)[0]

        return function


def _operand(tensor: torch.Tensor) -> Operand:
    return Operand(tuple(tensor.shape), tensor.stride(), str(tensor.dtype).removeprefix("torch."))


def _by_pytorch(product: Product) -> Function:
    parts, output = sublists(product)

    def function(*tensors: torch.Tensor) -> tuple[torch.Tensor]:
        given = [value for pair in zip(tensors, parts, strict=True) for value in pair]
        return (torch.einsum(*given, output).contiguous(),)

    return function


def _graph(contraction: Contraction) -> Graph:
    """The workload as the graph of a region."""
    expression = contraction.workload.expression
    labels = [f"in{number}" for number in range(len(expression.inputs))]
    return Graph(
        inputs=expression.inputs,
        constants={},
        nodes=(expression,),
        outputs=expression.outputs,
        labels=(*labels, "out0"),
    )


def _layouts(contraction: Contraction, operands: Sequence[Operand]) -> Layouts:
    dtype = getattr(torch, operands[0].dtype)
    strides, following = [], 1
    for extent in reversed(contraction.shape):
        strides.append(following)
        following *= extent
    return Layouts(
        inputs=tuple(
            Layout(shape=operand.shape, strides=operand.strides, dtype=dtype)
            for operand in operands
        ),
        outputs=(Layout(shape=contraction.shape, strides=tuple(reversed(strides)), dtype=dtype),),
    )
