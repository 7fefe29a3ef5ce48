"""How ATen operators are taken apart before a graph is cut into regions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch._decomp import (
    core_aten_decompositions,
    get_decompositions,
    global_decomposition_table,
)

from tuner.torch import attention, foreach

# Random numbers are PyTorch's own, so that they are those of the uncompiled model.
_RANDOM = (
    "aten.native_dropout",
    "aten.bernoulli",
    "aten.rand_like",
    "aten.randn_like",
    "aten.randint_like",
    "aten.uniform",
    "aten.normal_functional",
)
# Negative indices count from the end. It is made of `index_copy`, which takes none.
_KEPT = ("aten.index_fill",)
# A kernel that writes its statistics, on copies of them.
_BATCH_NORM = "aten._native_batch_norm_legit_functional.default"


def _multi_head_attention(
    query: Any,
    key: Any,
    value: Any,
    width: int,
    heads: int,
    qkv_weight: Any,
    qkv_bias: Any,
    projection: Any,
    projection_bias: Any,
    mask: Any = None,
    need_weights: bool = True,
    average_weights: bool = True,
    mask_type: Any = None,
) -> Any:
    """PyTorch's fused attention of a sequence to itself, [batch, length, width], in inference: its
    results, and the weights where they are asked for."""
    if query is not key or key is not value or mask is not None or query.is_nested:
        return NotImplemented
    functional, (batch, length, _), weights = torch.nn.functional, query.shape, None
    qkv = functional.linear(query, qkv_weight, qkv_bias).view(batch, length, 3, heads, -1)
    q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    if need_weights:
        weights = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1)
        values = weights @ v
        weights = weights.mean(1) if average_weights else weights
    else:
        values = functional.scaled_dot_product_attention(q, k, v)
    values = values.transpose(1, 2).reshape(batch, length, width)
    return functional.linear(values, projection, projection_bias), weights


def _encoder_layer(
    x: Any,
    width: int,
    heads: int,
    qkv_weight: Any,
    qkv_bias: Any,
    projection: Any,
    projection_bias: Any,
    use_gelu: bool,
    norm_first: bool,
    epsilon: float,
    *weights: Any,
    mask: Any = None,
    mask_type: Any = None,
) -> Any:
    """PyTorch's fused layer of an encoder, [batch, length, width], in inference. Its weights are
    those of two normalisations, then of two products."""
    norms, (up, up_bias, down, down_bias) = (weights[:2], weights[2:4]), weights[4:8]
    if len(weights) > 8 or mask is not None or x.is_nested:
        return NotImplemented
    functional = torch.nn.functional

    def normalised(x: Any, number: int) -> Any:
        return functional.layer_norm(x, (width,), *norms[number], epsilon)

    def attended(x: Any) -> Any:
        attention = (width, heads, qkv_weight, qkv_bias, projection, projection_bias)
        return _multi_head_attention(x, x, x, *attention, need_weights=False)[0]

    def fed_forward(x: Any) -> Any:
        hidden = functional.linear(x, up, up_bias)
        hidden = functional.gelu(hidden) if use_gelu else functional.relu(hidden)
        return functional.linear(hidden, down, down_bias)

    for number, part in enumerate((attended, fed_forward)):
        x = x + part(normalised(x, number)) if norm_first else normalised(x + part(x), number)
    return x


def rules() -> Mapping[Any, Callable[..., Any]]:
    """What operators are made of, down to those of core ATen that the table of operators has."""
    return _rules(_registered())


def _registered() -> frozenset[tuple[Any, Any]]:
    """The rules that are in PyTorch's table. Somebody may add some at any time."""
    return frozenset(global_decomposition_table["post_autograd"].items())


@lru_cache(maxsize=1)
def _rules(registered: frozenset[tuple[Any, Any]]) -> Mapping[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    more = get_decompositions([aten._native_batch_norm_legit_functional])
    own = {
        aten._native_multi_head_attention.default: _multi_head_attention,
        aten._transformer_encoder_layer_fwd.default: _encoder_layer,
        torch.ops.prims.fma.default: _multiplied_and_added,
        **attention.rules(),
        **foreach.rules(),
    }
    return {
        overload: rule
        for overload, rule in {**core_aten_decompositions(), **more, **own}.items()
        if str(overload).rpartition(".")[0] not in _RANDOM
    }


def rules_without_kernels() -> Mapping[Any, Callable[..., Any]]:
    """The rules of what PyTorch has no kernel for. What it has one for stays a call of it, which
    PyTorch computes faster than its parts; expressions take it apart (`tuner.torch.apart`)."""
    return _without_kernels(_registered())


@lru_cache(maxsize=1)
def _without_kernels(registered: frozenset[tuple[Any, Any]]) -> Mapping[Any, Callable[..., Any]]:
    table = _rules(registered)
    kept = {
        overload: rule
        for overload, rule in table.items()
        if not _is_kernel(overload) and str(overload).rpartition(".")[0] not in _KEPT
    }
    return {**kept, torch.ops.aten.native_batch_norm_backward.default: _batch_norm_backward}


def _batch_norm_backward(gradient: Any, x: Any, weight: Any, *given: Any) -> Any:
    """Without the running statistics, which it does not read in training: kept until then, they
    could not be replaced."""
    *running, mean, deviation, train, epsilon, mask = given
    if not train or running == [None, None]:
        return NotImplemented
    return torch.ops.aten.native_batch_norm_backward(
        gradient, x, weight, None, None, mean, deviation, train, epsilon, mask
    )


def _is_kernel(overload: Any) -> bool:
    """Whether PyTorch computes an operator by one kernel, into new tensors. Lists of tensors are
    many kernels."""
    name, schema = str(overload), overload._schema
    aliases = any(result.alias_info is not None for result in schema.returns)
    if schema.is_mutable or aliases or name.startswith("aten._foreach"):
        return False
    on_cpu = bool(torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), "CPU"))
    return on_cpu or name == _BATCH_NORM


def _multiplied_and_added(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


def is_training(inputs: Any) -> bool:
    """Whether a graph of these inputs may be differentiated."""
    return torch.is_grad_enabled() and any(
        isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in inputs
    )
