"""How ATen operators are taken apart before a graph is cut into regions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, get_decompositions

# Random numbers are PyTorch's own, so that they are those of the uncompiled model.
_WHOLE = (
    "aten.native_dropout",
    "aten.bernoulli",
    "aten.rand_like",
    "aten.randn_like",
    "aten.randint_like",
    "aten.uniform",
    "aten.normal_functional",
)
# Its decomposition returns something else for what only its derivative reads.
_ATTENTION = "aten._scaled_dot_product_flash_attention_for_cpu"


def decompositions(training: bool) -> Mapping[Any, Callable[..., Any]]:
    """To core ATen operators, of which the table of operators is made."""
    aten = torch.ops.aten
    more = get_decompositions([aten._native_batch_norm_legit_functional])
    whole = (*_WHOLE, _ATTENTION) if training else _WHOLE
    return {
        overload: rule
        for overload, rule in {**core_aten_decompositions(), **more}.items()
        if str(overload).rpartition(".")[0] not in whole and str(overload) not in whole
    }


def is_training(inputs: Any) -> bool:
    """Whether a graph of these inputs may be differentiated."""
    return torch.is_grad_enabled() and any(
        isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in inputs
    )
